"""Likely causes of wrong codes and scales: hypotheses about a wrong step of a quantized norm.

A hypothesis computes codes or scales from y. Each recipe rounds y differently, and all recipes are
tried. The bits are compared with the results that float32 noise in y cannot change.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.norms.codes import E4M3FN, E4M3FNUZ, CodeType
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.quant import POWERS, PowerEnd, Quant, powers_of_two
from truenorm.verify.norms.quantized.answers import (
    Mask,
    answers_of,
    in_groups,
    largest_in_groups,
)
from truenorm.verify.operation import Case, Results
from truenorm.verify.types import Array, Float64s, dtype_of

Run = tuple[Case, Results]
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
ANY_SCALE = -1.0
"""Stands for the scale of a group of zeros, which may be any."""
BLOCKS = (1024, 512, 256, 128, 64, 32)
OTHER_EPS = (1e-5, 1e-6, 1e-8, 1e-12, 0.0)
ADDED_TO_SCALE = (1e-5, 1e-6, 1e-8, 1e-10, 1e-12)
OTHER_QMAX = (448.0, 240.0, 224.0, 57344.0, 128.0, 127.0, 256.0, 6.0, 1.0)
DIGITS = (1, 2, 3, 4)
"""Significant digits of a number that is fitted to results."""


@dataclass(frozen=True)
class Rows:
    """y of a case by one recipe, and the scales that were returned or given.

    `low` and `high` are the numbers next to `y` that float32 noise allows, by their size.
    `of_zeros` is the scale of a group of zeros.
    """

    case: Case
    quant: Quant
    y: Float64s
    low: Float64s
    high: Float64s
    scales: Float64s
    of_zeros: Float64s | float = ANY_SCALE

    @property
    def unit(self) -> Float64s:
        """The value of the code 1 for each element."""
        return self.spread(self.quant.code_units(self.scales, self.case))

    @property
    def global_scale(self) -> float:
        """The scale of all block scales."""
        return self.quant.setting_of(self.case)

    def spread(self, scales: Float64s) -> Float64s:
        """Return one scale for each element."""
        return np.broadcast_to(self.quant.spread(scales, self.y.shape[1]), self.y.shape)

    def own_scales(self, y: Float64s, qmax: float = 0.0) -> Float64s:
        """Return the scales of y by the rule, in float64."""
        quant, amax = self.quant, largest_in_groups(np.abs(y), self.quant)
        qmax = qmax or quant.code.largest
        if quant.scale_type == "e8m0":
            scales = np.ldexp(1.0, quant.powers(amax))
        elif quant.scale_type == "e4m3fn":
            scales = E4M3FN.nearest(amax * self.global_scale / qmax)
        else:
            scales = np.maximum(amax / qmax, quant.least_scale)
        return np.where(amax > 0, scales, self.of_zeros)


Predict = Callable[[Rows, Float64s], Float64s]
"""Returns codes or scales, decoded, for rows with another y."""
Change = Callable[[Case], Case | None]
"""Returns the case whose right results are returned, or None if there is none."""


class Hypothesis(NamedTuple):
    """A wrong step, and the results with it; `change` is a change of the inputs."""

    cause: Cause
    predict: Predict
    change: Change | None = None
    scales_zeros: bool = False  # also about codes whose scale is 0


# Hypotheses about the conversion to codes: functions of y in units of the scale


def _not_saturated(code: CodeType, v: Float64s) -> Float64s:
    beyond = np.abs(v) > code.largest + code.steps(np.asarray(code.largest)) / 2
    overflow = np.copysign(np.inf, v) if code.name == "e5m2" else np.nan
    return np.where(beyond, overflow, code.nearest(v))


def _clamped(at: CodeType, code: CodeType, v: Float64s) -> Float64s:  # noqa: ARG001 (of the interface)
    return at.nearest(v)


def _top_binade(code: CodeType, v: Float64s) -> Float64s:
    top = 2.0 ** np.floor(np.log2(code.largest))
    return np.where(np.abs(v) >= top, np.copysign(code.largest, v), code.nearest(v))


def _truncated(code: CodeType, v: Float64s) -> Float64s:
    sizes = code.sizes[code.sizes <= code.largest]
    places = np.searchsorted(sizes, np.abs(v), side="right") - 1
    return np.where(np.isnan(v), np.nan, np.copysign(sizes[places], v))


def _wrapped(code: CodeType, v: Float64s) -> Float64s:  # noqa: ARG001 (of the interface)
    return (np.rint(v) + 128) % 256 - 128


def _flushed(code: CodeType, v: Float64s) -> Float64s:
    smallest = 2.0 ** (code.quantum + code.precision - 1)
    return np.where(np.abs(v) < smallest, 0.0, code.nearest(v))


def _bits_of_e4m3fn(code: CodeType, v: Float64s) -> Float64s:
    return E4M3FNUZ.decode(E4M3FN.encode(E4M3FN.nearest(np.clip(v, -code.largest, code.largest))))


def _negative_zero(code: CodeType, v: Float64s) -> Float64s:
    codes = code.nearest(v)
    return np.where((codes == 0) & np.signbit(v), np.nan, codes)


def conversions(quant: Quant) -> Iterator[tuple[Cause, Callable[[CodeType, Float64s], Float64s]]]:
    """Yield wrong conversions to codes: their causes, and codes of y over the scale, decoded."""
    code = quant.code
    infinite = "infinity" if code.name == "e5m2" else "NaN"
    if code.name not in ("int8", "e2m1"):
        words = f"codes beyond the largest are not saturated: they are {infinite}"
        yield Cause("codes-not-saturated", words), _not_saturated
        yield Cause("codes-flushed", "subnormal codes are flushed to zero"), _flushed
    for limit in OTHER_QMAX:
        if 1 < limit < code.largest:
            clamped = replace(code, largest=limit)
            cause = Cause(f"codes-clamped({limit:g})", f"codes are clamped at {limit:g}")
            yield cause, partial(_clamped, clamped)
    if code.name == "e4m3fn":
        yield Cause("codes-top-binade", "codes from 256 on are written as 448"), _top_binade
    yield Cause("codes-truncated", "codes are rounded towards zero"), _truncated
    if code.name == "int8":
        yield Cause("codes-wrap", "codes beyond the largest wrap around"), _wrapped
    if code.name == "e4m3fnuz":
        words = "codes have the bits of e4m3fn, not of e4m3fnuz"
        yield Cause("codes-of-e4m3fn", words), _bits_of_e4m3fn
        words = "-0 is written as 0x80, which is NaN in e4m3fnuz"
        yield Cause("negative-zero-as-nan", words), _negative_zero


def _converted(
    convert: Callable[[CodeType, Float64s], Float64s], rows: Rows, y: Float64s
) -> Float64s:
    return convert(rows.quant.code, y / rows.unit)


# Hypotheses about the scaling: y in units of the scale


def _right(rows: Rows, y: Float64s) -> Float64s:
    """Return the codes of y over the scale, also of 0/0."""
    return rows.quant.code.nearest(y / rows.unit)


def by_scales(predict: Predict, rows: Rows, y: Float64s) -> Float64s:
    """Return the codes of y for scales other than the returned ones; 0 for a scale of 0.

    A float32 scale has noise of its own: in y and in its scale, the same noise would cancel.
    """
    of_scale = rows.y if rows.quant.scale_type == "float32" else y
    scales = predict(rows, of_scale).astype(np.float32).astype(np.float64)
    unit = rows.spread(rows.quant.code_units(scales, rows.case))
    return np.where((y == 0) | (unit == 0), 0.0, rows.quant.code.nearest(y / unit))


def _times_scale(rows: Rows, y: Float64s) -> Float64s:
    return rows.quant.code.nearest(y * rows.unit)


def _multiplied(factor: float, rows: Rows, y: Float64s) -> Float64s:
    return rows.quant.code.nearest(factor * y / rows.unit)


def _unscaled(rows: Rows, y: Float64s) -> Float64s:
    return rows.quant.code.nearest(y)


def _scale_plus(number: float, rows: Rows, y: Float64s) -> Float64s:
    return rows.quant.code.nearest(y / (rows.unit + number))


def _where_overflow(rows: Rows, y: Float64s, overflow: Mask) -> Float64s:
    return rows.quant.code.nearest(np.where(overflow, y * np.inf, y / rows.unit))


def _reciprocal_overflows(rows: Rows, y: Float64s) -> Float64s:
    return _where_overflow(rows, y, np.asarray(1 / rows.unit > LARGEST_FLOAT32))


def _least_power_is_zero(rows: Rows, y: Float64s) -> Float64s:
    return _where_overflow(rows, y, np.asarray(rows.unit == 2.0**-127))


def _scale_before(rows: Rows, y: Float64s) -> Float64s:
    unit = rows.unit.copy()
    starts = np.arange(rows.quant.group, y.shape[1], rows.quant.group)
    unit[:, starts] = unit[:, starts - 1]
    return rows.quant.code.nearest(y / unit)


def _in_groups_of(group: int, rows: Rows, y: Float64s) -> Float64s:
    quant = replace(rows.quant, scale=f"per-{group}")
    narrow = replace(rows, quant=quant, of_zeros=ANY_SCALE)
    return by_scales(own, narrow, y)


def _exchanged(rows: Rows, y: Float64s) -> Float64s:
    codes = _right(rows, y)
    return codes.reshape(len(codes), -1, 2)[:, :, ::-1].reshape(codes.shape)


def _subnormal_as_normal(rows: Rows, y: Float64s) -> Float64s:
    scales = rows.scales
    wrong = (1 + scales * 2.0**9 / 8) * 2.0**-7
    decoded = np.where((scales > 0) & (scales < 2.0**-6), wrong, scales)
    unit = rows.spread(decoded / rows.global_scale)
    return np.where(unit == 0, 0.0, rows.quant.code.nearest(y / unit))


def code_hypotheses(norm: Norm, runs: Sequence[Run]) -> Iterator[Hypothesis]:
    """Yield wrong conversions to codes, and wrong scalings."""
    quant = norm.quant
    for factor in dict.fromkeys(_factors(runs)):
        cause = Cause("y-times-a-factor", f"y is multiplied by {factor:g}")
        yield Hypothesis(cause, partial(_multiplied, factor))
    for cause, convert in conversions(quant):
        yield Hypothesis(cause, partial(_converted, convert))
    cause = Cause("zeros-over-zero", "zeros are divided by a scale of zero")
    yield Hypothesis(cause, _right, scales_zeros=True)
    if quant.is_static:
        done = ("multiplied by", "divided by")
        used, declared = done if quant.direction == "divide" else done[::-1]
        words = f"y is {used} the scale, not {declared} it"
        yield Hypothesis(Cause("scale-inverted", words), _times_scale)
        yield Hypothesis(Cause("no-scale", "the scale is left out"), _unscaled)
    if quant.scale_type == "float32":
        for number in ADDED_TO_SCALE:
            words = f"y is divided by scale + {number:g}"
            yield Hypothesis(Cause(f"scale-plus({number:g})", words), partial(_scale_plus, number))
        words = "1/scale, or qmax/amax, overflows where the largest |y| is tiny"
        yield Hypothesis(Cause("reciprocal-overflows", words), _reciprocal_overflows)
    if quant.scale_type == "e8m0":
        words = "the least scale, 2^-127, is flushed to zero: y is multiplied by infinity"
        yield Hypothesis(Cause("least-power-as-0", words), _least_power_is_zero)
    if quant.group:
        words = "the first element of a group is scaled by the scale of the group before"
        yield Hypothesis(Cause("first-by-scale-before", words), _scale_before)
    if quant.group and quant.scale_type == "float32":
        for group in (each for each in BLOCKS if each < quant.group):
            words = f"codes are scaled in groups of {group}, not of {quant.group}"
            cause = Cause(f"codes-in-groups-of({group})", words)
            yield Hypothesis(cause, partial(_in_groups_of, group))
    if quant.code.name == "e2m1":
        cause = Cause("codes-of-byte-exchanged", "the two codes of a byte are exchanged")
        yield Hypothesis(cause, _exchanged)
    if quant.scale_type == "e4m3fn":
        words = "subnormal block scales are decoded as though they were normal"
        yield Hypothesis(Cause("subnormal-scale-as-normal", words), _subnormal_as_normal)
    yield from _input_hypotheses(_right)


def codes_by_other_scales(of_scale: Sequence[Hypothesis]) -> Iterator[Hypothesis]:
    """Yield codes by wrong scales, while the right ones are returned."""
    for cause, predict, change, _ in of_scale:
        if change is None:
            words = f"codes are computed with other scales than returned: {cause.words}"
            other = Cause(f"codes-by({cause.id})", words)
            yield Hypothesis(other, partial(by_scales, predict))


# Hypotheses about inputs


def _with_eps(eps: float, case: Case) -> Case:
    return replace(case, eps=eps)


def _gamma_as(dtype: str, case: Case) -> Case | None:
    gamma: Array = case.gamma
    if gamma.dtype != np.float32:
        return None
    halves = np.ascontiguousarray(gamma).view(dtype_of(dtype))[: gamma.size]
    return case.with_inputs(gamma=halves)


def _without_gamma(case: Case) -> Case:
    return case.with_inputs(gamma=np.ones_like(case.gamma))


def _input_hypotheses(predict: Predict) -> Iterator[Hypothesis]:
    for eps in OTHER_EPS:
        cause = Cause("no-eps", "eps is left out")
        if eps:
            cause = Cause(f"eps-is({eps:g})", f"eps is {eps:g}, whatever is given")
        yield Hypothesis(cause, predict, partial(_with_eps, eps))
    for dtype in ("bfloat16", "float16"):
        cause = Cause(f"gamma-read-as({dtype})", f"gamma is read as {dtype}")
        yield Hypothesis(cause, predict, partial(_gamma_as, dtype))
    yield Hypothesis(Cause("no-gamma", "gamma is left out"), predict, _without_gamma)


# Hypotheses about scales


def own(rows: Rows, y: Float64s) -> Float64s:
    """Return the right scales."""
    return rows.own_scales(y)


def _of_x(rows: Rows, y: Float64s) -> Float64s:
    norm: Norm = rows.case.operation  # type: ignore[assignment]
    return rows.own_scales(norm.normalized(rows.case) + 0 * y)


def _of_largest_y(rows: Rows, y: Float64s) -> Float64s:
    largest = in_groups(y, rows.quant).max(axis=2)
    sizes = rows.own_scales(np.repeat(np.abs(largest), rows.quant.group or y.shape[1], axis=1))
    return np.asarray(np.copysign(sizes[:, : largest.shape[1]], largest))


def _of_whole_blocks(block: int, rows: Rows, y: Float64s) -> Float64s:
    whole = y.shape[1] // block * block or y.shape[1]
    return rows.own_scales(np.where(np.arange(y.shape[1]) < whole, y, 0.0))


def _of_all_rows(rows: Rows, y: Float64s) -> Float64s:
    return rows.own_scales(np.full(y.shape, np.abs(y).max(initial=0.0)))


def _amax_over(divisor: float) -> str:
    return f"amax/{divisor:g}" if divisor != 1 else "amax"


def _over(qmax: float, rows: Rows, y: Float64s) -> Float64s:
    return rows.own_scales(y, qmax)


def _inverse(rows: Rows, y: Float64s) -> Float64s:
    return 1 / rows.own_scales(y)


def _elsewhere(place: Callable[[Float64s], Float64s], rows: Rows, y: Float64s) -> Float64s:
    return place(rows.own_scales(y))


OF_OTHER_ROWS: dict[Cause, Callable[[Float64s], Float64s]] = {
    Cause("scales-of-row-before", "scales are those of the row before"): lambda scales: np.roll(
        scales, 1, axis=0
    ),
    Cause("scales-of-next-row", "scales are those of the next row"): lambda scales: np.roll(
        scales, -1, axis=0
    ),
    Cause("scales-of-first-row", "scales are those of the first row"): lambda scales: (
        scales[:1] + 0 * scales
    ),
}
OF_OTHER_GROUPS: dict[Cause, Callable[[Float64s], Float64s]] = {
    Cause("scales-transposed", "scale is transposed"): lambda scales: scales.T.reshape(
        scales.shape
    ),
    Cause("scales-of-group-before", "scales are those of the group before"): lambda scales: (
        np.roll(scales, 1, axis=1)
    ),
    Cause("scales-of-next-group", "scales are those of the next group"): lambda scales: np.roll(
        scales, -1, axis=1
    ),
    Cause("scales-of-first-group", "scales are those of the first group"): lambda scales: (
        scales[:, :1] + 0 * scales
    ),
}
"""Right scales in wrong places, by cause."""


def _last_is_zero(rows: Rows, y: Float64s) -> Float64s:
    scales = rows.own_scales(y).copy()
    scales[:, -1] = 0
    return scales


def _all_zero(rows: Rows, y: Float64s) -> Float64s:
    return 0 * rows.own_scales(y)


def _by_rule(power: str, rows: Rows, y: Float64s) -> Float64s:
    return replace(rows, quant=replace(rows.quant, power=power)).own_scales(y)


def _by_power(end: PowerEnd, rows: Rows, y: Float64s) -> Float64s:
    amax = largest_in_groups(np.abs(y), rows.quant)
    return np.where(amax > 0, np.ldexp(1.0, powers_of_two(amax, end)), rows.of_zeros)


POWER_FORMULAS: dict[str, Callable[[float], PowerEnd]] = {
    "ceil": lambda divisor: (divisor, True),
    "floor": lambda divisor: (2 * divisor, False),
    "round": lambda divisor: (math.sqrt(2) * divisor, True),
}


def _power_formulas(norm: Norm, runs: Sequence[Run]) -> Iterator[Hypothesis]:
    """Yield powers of two of amax over the multiples of known divisors that fit most scales.

    Rounding down over one divisor and up over its double differ in few numbers: those over a known
    divisor come first.
    """
    known = [np.concatenate(each) for each in zip(*_known_scales(runs), strict=True)]
    divisors = {1.0, norm.quant.code.largest, *OTHER_QMAX}
    fractions = {math.frexp(each)[0] for each in divisors}
    formulas: list[tuple[float, str]] = []
    for fraction, (way, end_of) in product(fractions, POWER_FORMULAS.items() if known else ()):
        amax, scales = known
        apart = np.median(np.log2(scales) - powers_of_two(amax, end_of(fraction)))
        formulas.append((math.ldexp(fraction, -round(apart)), way))
    for divisor, way in sorted(formulas, key=lambda each: (each[0] not in divisors, each)):
        formula = f"{way}(log2({_amax_over(divisor)}))"
        words = f"the power of two is {formula}, not by the rule {norm.quant.power}"
        end = POWER_FORMULAS[way](divisor)
        yield Hypothesis(Cause(f"power-is({formula})", words), partial(_by_power, end))


def _over_global_scale(rows: Rows, y: Float64s) -> Float64s:
    amax = largest_in_groups(np.abs(y), rows.quant)
    return E4M3FN.nearest(amax / rows.global_scale / rows.quant.code.largest)


def _block_scale_not_saturated(rows: Rows, y: Float64s) -> Float64s:
    amax = largest_in_groups(np.abs(y), rows.quant)
    return _not_saturated(E4M3FN, amax * rows.global_scale / rows.quant.code.largest)


def _at_least(number: float, rows: Rows, y: Float64s) -> Float64s:
    return np.maximum(rows.own_scales(y), number)


def scale_hypotheses(norm: Norm, runs: Sequence[Run]) -> Iterator[Hypothesis]:
    """Yield wrong scales; some have a number that is fitted to the scales of runs."""
    quant = norm.quant
    largest = Cause("scale-of({})", "the scale is of the largest {}, not of the largest |y|")
    yield Hypothesis(largest.of("|x|"), _of_x)
    cause = Cause("scale-before-gamma", "the scale is of the largest |y| before gamma")
    yield Hypothesis(cause, own, _without_gamma)
    yield Hypothesis(largest.of("y"), _of_largest_y)
    cause = Cause("scale-of-all-rows", "the scale is of the largest |y| of all rows")
    yield Hypothesis(cause, _of_all_rows)
    for block in BLOCKS:
        words = f"the largest |y| is found without the last partial block of {block} elements"
        cause = Cause(f"scale-without-partial-block({block})", words)
        yield Hypothesis(cause, partial(_of_whole_blocks, block))
    cause = Cause("scale-inverse", "the inverse of the scale is returned")
    yield Hypothesis(cause, _inverse)
    for place, move in {**OF_OTHER_ROWS, **(OF_OTHER_GROUPS if quant.group else {})}.items():
        yield Hypothesis(place, partial(_elsewhere, move))
    if quant.scale_type != "e8m0":
        for qmax in dict.fromkeys((*OTHER_QMAX, *_divisors(runs))):
            if qmax != quant.code.largest:
                words = f"the scale is {_amax_over(qmax)}, not {_amax_over(quant.code.largest)}"
                cause = Cause(f"scale-is({_amax_over(qmax)})", words)
                yield Hypothesis(cause, partial(_over, qmax))
    least = _least_scale(runs) if quant.scale_type == "float32" else 0.0
    if least > 0:
        cause = Cause("scale-at-least", f"no scale is below {least:g}")
        yield Hypothesis(cause, partial(_at_least, least))
    if quant.scale_type == "e8m0":
        for power in POWERS:
            if power != quant.power:
                words = f"powers are rounded by the rule {power}, not {quant.power}"
                yield Hypothesis(Cause(f"power-by({power})", words), partial(_by_rule, power))
        yield from _power_formulas(norm, runs)
    if quant.scale_type == "e4m3fn":
        words = "amax is divided by the global scale, not multiplied by it"
        yield Hypothesis(Cause("over-global-scale", words), _over_global_scale)
        words = "scales beyond the largest are not saturated: they are NaN"
        yield Hypothesis(Cause("scales-not-saturated", words), _block_scale_not_saturated)
    yield from _input_hypotheses(own)
    cause = Cause("scale-of-last-group-0", "the scale of the last group is 0")
    yield Hypothesis(cause, _last_is_zero)
    yield Hypothesis(Cause("scales-0", "all scales are 0"), _all_zero)


def _known_scales(runs: Sequence[Run]) -> Iterator[tuple[Float64s, Float64s]]:
    """Yield the largest |y| and the scale of groups that are not zero, by case.

    The largest |y| is multiplied by the scale of all block scales.
    """
    for case, results in runs:
        answers = answers_of(case)
        setting = case.inputs.get("global_scale")
        factor = 1.0 if setting is None else float(setting[0])
        scales = answers.decoded("scale", results.get("scale"))
        if scales is not None:
            known = (answers.amax > 0) & np.isfinite(scales) & (scales != 0)
            yield factor * answers.amax[known], scales[known]


def _divisors(runs: Sequence[Run]) -> list[float]:
    """Return what the largest |y| over most scales is close to."""
    return _of_few_digits([amax / scales for amax, scales in _known_scales(runs)])


def _factors(runs: Sequence[Run]) -> list[float]:
    """Return what the number of most codes over y is close to."""
    ratios = []
    for case, results in runs:
        answers = answers_of(case).given(results)
        codes = answers.decoded("codes", results.get("codes"))
        if codes is not None and answers.values["codes"] is not None:
            share = np.abs(codes) / answers.quant.code.largest
            ratios.append((codes * answers.code_unit / answers.y)[(share > 1 / 8) & (share < 1)])
    return _of_few_digits(ratios)


def _of_few_digits(every: Sequence[Float64s]) -> list[float]:
    known = np.concatenate([*every, [np.nan]])
    middle = float(np.nanmedian(known)) if np.isfinite(known).any() else 1.0
    return [float(f"{middle:.{digits}g}") for digits in DIGITS]


def _least_scale(runs: Sequence[Run]) -> float:
    """Return the least scale of all groups that are not zero, if it occurs in two cases."""
    least = [float(scales.min(initial=np.inf)) for _, scales in _known_scales(runs)]
    number = min(least, default=0.0)
    return float(f"{number:.6g}") if np.isfinite(number) and least.count(number) > 1 else 0.0
