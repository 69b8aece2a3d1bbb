"""Exact codes and scales of quantized norms, and the errors that results may have.

The error of a code is the distance that y must move until the code is right: the distance of y
from the scale times the cell of the code. The error of a scale is the distance that the largest
|y| of its group must move. Both are errors of y, with the natural scales and the bounds of y.

Codes are judged given the scales that were returned. A code is decided in float64 where a bound
allows it, and in integers otherwise: y over the scale is (a*r + b)/d, as y is.
"""

from collections.abc import Mapping
from copy import copy
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT32, FLOAT64
from truenorm.verify.norms.codes import E4M3FN, unpacked
from truenorm.verify.norms.enclosures import enclose_forward
from truenorm.verify.norms.exact import ExactRows, round_sum
from truenorm.verify.norms.norm import Norm, require_norm
from truenorm.verify.norms.quant import Quant
from truenorm.verify.norms.scales import NormScales
from truenorm.verify.operation import Case, Results
from truenorm.verify.oracle import (
    AnswerBounds,
    Arrays,
    ElementErrors,
    Expected,
    LinearInRoot,
    expected,
    output_types,
)
from truenorm.verify.types import Array, Float64s, dtype_of, ulps_of, unit_roundoff

BOUND = 2.0**-50
"""The relative error of y over a scale in float64: y is rounded once, and up to three operations
follow. The radius of the enclosure of y is added."""
SCALING_ERROR = 2.0**-22
"""The relative error that a few float32 operations of the scaling may add."""
Mask = NDArray[np.bool_]


class QuantizedScales:
    """The natural scales of a case: the scales of y."""

    def __init__(self, norm: Norm, case: Case, exact: Mapping[str, Float64s]) -> None:
        self._of_y = of_y = NormScales(norm, case, exact)
        self._quant = norm.quant
        self.kappa = of_y.kappa

    def terms(self, output: str) -> int:
        """Return how many numbers are summed for one element of the output."""
        return self._of_y.terms("sum" if output == "sum" else "y")

    def of(self, output: str, power: int = 0) -> Float64s:
        """Return the scale of each element, for errors that grow like this power of kappa."""
        if output == "sum":
            return self._of_y.of("sum", power)
        scale = self._of_y.of("y", power)
        if output == "amax":
            return np.full(1, scale.max(initial=0.0))
        return largest_in_groups(scale, self._quant) if output == "scale" else scale


def enclosed_answers(norm: Norm, case: Case) -> dict[str, Float64s]:
    """Return enclosures of y, r and xhat of each row and, with a residual, the sum."""
    once = case.part(slice(case.shape[0] // case.repeats))
    balls = enclose_forward(once)
    rows, y = norm.normalized(once), balls["y"]
    # As in `truenorm.verify.norms.exact`: beside an infinite element xhat is 0.
    infinite, nan = (
        np.asarray(each(rows)).any(axis=1, keepdims=True) for each in (np.isinf, np.isnan)
    )
    is_zero = infinite & ~nan & np.isfinite(rows) & (not norm.centred)
    beta = case.inputs.get("beta")
    shift = 0.0 if beta is None else beta.astype(np.float64)
    statistics = {
        name: np.nan_to_num(balls[name].high, posinf=0, neginf=0) for name in ("r", "xhat")
    }
    arrays = {
        "y": np.where(is_zero, shift, y.high),
        "radius": np.where(is_zero, 0.0, y.radius),
        **statistics,
    }
    if norm.adds:
        arrays["sum"] = round_sum(once.x, once.residual)
    return arrays


def in_groups(rows: Float64s, quant: Quant) -> Float64s:
    """Return rows as (rows, groups, elements), with zeros in the last group."""
    count, size = rows.shape
    group = quant.group or max(size, 1)
    groups = quant.groups(size)
    wide = np.zeros((count, groups * group), rows.dtype)
    wide[:, :size] = rows
    return wide.reshape(count, groups, group)


def largest_in_groups(rows: Float64s, quant: Quant) -> Float64s:
    """Return the largest number of each group."""
    largest: Float64s = in_groups(rows, quant).max(axis=2, initial=0.0)
    return largest


class QuantizedExpected(Expected):
    """The exact answers to a case of a quantized norm; codes depend on the returned scales."""

    def __init__(self, case: Case, exact: Arrays) -> None:
        self._case = self.case = case
        self.norm = require_norm(case.operation, "a quantized answer")
        self.quant = self.norm.quant
        self.types = output_types(case)
        self.values = dict.fromkeys(each.name for each in case.operation.outputs)
        self.wide, self.remainders, self.ulps = {}, {}, {}
        self._allowed = {}
        with np.errstate(all="ignore"):
            self.scales = case.operation.scales(case, exact)
            self.y, self._radius = (
                np.tile(exact[name], (case.repeats, 1)) for name in ("y", "radius")
            )
            self._finite = np.isfinite(self.y)
            self._rows: dict[int, ExactRows] = {}
            self._set("codes", self.y)
            if "sum" in self.types:
                pairs = np.tile(exact["sum"], (case.repeats, 1, 1))
                self._set("sum", pairs[..., 0])
                self.remainders["sum"] = pairs[..., 1]
                self.values["sum"] = pairs[..., 0].astype(dtype_of(self.types["sum"]))
            self._set_scales()
            if self.quant.is_static:
                self._set_codes(np.asarray(case.scale, np.float64).reshape(1, 1))

    def _set(self, output: str, wide: Float64s) -> None:
        """Set the exact numbers of an output, in the units in which errors are measured."""
        self.wide[output] = wide
        kind = self.case.dtype
        self.ulps[output] = ulps_of(np.where(np.isfinite(wide), wide, 0.0), kind)

    # Scales

    def _set_scales(self) -> None:
        """Compute amax of each group, and the exact scales and the amax of the call."""
        finite = np.where(self._finite, np.abs(self.y), 0.0)
        error = np.where(self._finite, BOUND * finite + self._radius, 0.0)
        sizes, errors = in_groups(finite, self.quant), in_groups(error, self.quant)
        if self.quant.scale_type:
            self._broken: Mask = np.asarray(in_groups(~self._finite, self.quant).any(axis=2))
            amax = self.amax = sizes.max(axis=2, initial=0.0)
            candidates = sizes + errors >= (sizes - errors).max(axis=2, keepdims=True, initial=0.0)
            least = self.quant.least_scale * self.quant.code.largest
            self._set("scale", np.where(self._broken, np.nan, np.maximum(amax, least)))
            bound = (errors * candidates).max(axis=2, initial=0.0)
            exact = self._exact_scales(amax, bound, candidates)
            kind = np.float32 if self.quant.scale_type == "float32" else np.float64
            self.values["scale"] = exact.astype(kind)
        if "amax" in self.types:
            top = finite.max(initial=0.0) if self._finite.all() else np.nan
            self._set("amax", np.full(1, top))
            once = len(finite) // self._case.repeats
            amax = self._exact_amax(finite[:once], error[:once])
            self.values["amax"] = np.full(1, amax, np.float32)

    def _exact_amax(self, sizes: Float64s, errors: Float64s) -> float:
        """Return the largest |y| of the call, rounded once to float32."""
        least = (sizes - errors).max(initial=0.0)
        low, high = (np.float32(end) for end in (least, (sizes + errors).max(initial=0.0)))
        if low == high:
            return float(low)
        candidates = np.argwhere(sizes + errors >= least).tolist()
        return max(abs(self._element(i, j).round_to(FLOAT32)) for i, j in candidates)

    def _exact_scales(self, amax: Float64s, bound: Float64s, candidates: Mask) -> Float64s:
        """Return the exact scale of each group, rounded once."""
        low, high = (self._rounded_scales(amax + sign * bound) for sign in (-1, 1))
        values = self._rounded_scales(amax)
        group = self.quant.group or self.case.shape[1]
        for i, g in np.argwhere((low != high) & ~self._broken & (amax > 0)).tolist():
            columns = g * group + np.flatnonzero(candidates[i, g])
            elements = [self._element(i, int(j)) for j in columns if j < self.case.shape[1]]
            values[i, g] = max(map(self._round_scale, elements))
        return values

    def _rounded_scales(self, amax: Float64s) -> Float64s:
        """Return scales of amax by the rule, computed in float64."""
        if self.quant.scale_type == "e8m0":
            return np.ldexp(1.0, self.quant.powers(np.maximum(amax, 0.0)))
        if self.quant.scale_type == "e4m3fn":
            return E4M3FN.nearest(amax * self._global_scale / self.quant.code.largest)
        scales = np.maximum(amax / self.quant.code.largest, self.quant.least_scale)
        return scales.astype(np.float32).astype(np.float64)

    def _round_scale(self, element: LinearInRoot) -> float:
        """Return the scale of a group with a given largest element, rounded in integers."""
        quant = self.quant
        if quant.scale_type == "e8m0":
            amax = abs(element.round_to(FLOAT64))
            power = int(quant.powers(np.asarray(amax)))
            for near in (power - 1, power):
                end, included = quant.power_boundary(near)
                above = _square_minus(element, end)
                if above < 0 or (included and above == 0):
                    return float(np.ldexp(1.0, max(near, -127)))
            return float(np.ldexp(1.0, power + 1))
        factor = Fraction(1) / Fraction(quant.code.largest)
        if quant.scale_type == "e4m3fn":
            scaled = _times(element, factor * Fraction(self._global_scale))
            return min(abs(scaled.round_to(E4M3FN.format)), E4M3FN.largest)
        return max(
            abs(_times(element, factor).round_to(FLOAT32)), float(np.float32(quant.least_scale))
        )

    @property
    def _global_scale(self) -> float:
        return self.quant.setting_of(self.case)

    def _scale_cells(self, scales: Float64s) -> tuple[Float64s, Float64s]:
        """Return the least and the largest amax that round to each scale."""
        quant = self.quant
        if quant.scale_type == "e8m0":
            exponents = np.frexp(np.where(np.isfinite(scales), scales, 1.0))[1] - 1
            return quant.power_cells(exponents)
        if quant.scale_type == "e4m3fn":
            low, high = E4M3FN.cells(scales)
            unit = quant.code.largest / self._global_scale
            return low * unit, high * unit
        finite = np.where(np.isfinite(scales), scales, 0.0)
        # Below a power of two numbers are twice as dense.
        below, above = (ulps_of(each, "float32") / 2 for each in (np.nextafter(finite, 0), finite))
        return (scales - below) * quant.code.largest, (scales + above) * quant.code.largest

    def _scale_errors(self, scales: Float64s) -> ElementErrors:
        amax, value = self.wide["scale"], np.asarray(self.values["scale"], np.float64)
        low, high = self._scale_cells(scales)
        error = np.maximum(np.maximum(low - amax, amax - high), 0.0)
        if self.quant.scale_type == "float32":
            exact = amax / self.quant.code.largest
            in_ulp = np.abs(scales - exact) / ulps_of(np.nan_to_num(exact), "float32")
        elif self.quant.scale_type == "e8m0":
            in_ulp = np.abs(np.log2(scales) - np.log2(value))
        else:
            exact = amax * self._global_scale / self.quant.code.largest
            exact = np.minimum(exact, E4M3FN.largest)
            in_ulp = np.abs(scales - exact) / E4M3FN.steps(np.nan_to_num(exact))
        error, in_ulp = (np.where(np.isfinite(scales), each, np.inf) for each in (error, in_ulp))
        # Any finite scale is right for zeros, and a floor for a tiny group.
        fits = (self.amax == 0) & np.isfinite(scales) | self.is_floored(scales)
        measured = ~np.isnan(amax) & ~fits
        return ElementErrors.where(measured, error, in_ulp, np.asarray(scales == value))

    def is_floored(self, scales: Float64s) -> Mask:
        """Return True for each scale that is a floor, above the scale of its group.

        A floor is the least scale of the case: no group has a smaller one. A scale that is off by
        a few roundings is no floor.
        """
        if self.quant.scale_type != "float32":
            return np.zeros(scales.shape, bool)
        known = (self.amax > 0) & np.isfinite(scales)
        least = float(np.where(known, scales, np.inf).min(initial=np.inf))
        own = self.amax / self.quant.code.largest
        above = known & (scales == least) & (scales > own * (1 + SCALING_ERROR))
        return np.asarray(above & bool(self.quant.floor_name(least)))

    # Codes

    def given(self, results: Results) -> "QuantizedExpected":
        """Return the answers with codes for the scales that were returned."""
        if self.quant.is_static:
            return self
        answers = copy(self)
        answers.values = {**self.values, "codes": None}
        scales = self.decoded("scale", results.get("scale"))
        if scales is not None:
            with np.errstate(all="ignore"):
                answers._set_codes(scales)
        return answers

    def given_exact(self) -> "QuantizedExpected":
        """Return the answers with codes for the exact scales; zeros have the scale 1."""
        answers = copy(self)
        scales = np.asarray(self.values["scale"], np.float64)
        answers._set_codes(np.where(scales > 0, scales, 1.0))
        return answers

    def _set_codes(self, scales: Float64s) -> None:
        """Compute the exact codes for scales of all rows, of each row or of each group."""
        spread = self.quant.spread(scales, self.case.shape[1])
        every = np.broadcast_to(spread, self.y.shape)
        self.code_unit = self.quant.code_units(every, self.case)
        self._quotient = quotient = self._over(every)
        code = self.quant.code
        error = BOUND * np.abs(quotient) + self._radius / np.abs(self.code_unit)
        low, high = code.nearest(quotient - error), code.nearest(quotient + error)
        values = np.where((self.y == 0) | (self.code_unit == 0), 0.0, code.nearest(quotient))
        usable = self._finite & np.isfinite(self.code_unit) & (self.code_unit != 0)
        for i, j in np.argwhere((low != high) & usable).tolist():
            ratio = self._ratio(float(spread[i % len(spread), j % spread.shape[1]]))
            exact = _times(self._element(i, j), ratio).round_to(code.format)
            values[i, j] = min(max(exact, -code.largest), code.largest)
        clamped = code.largest if self.quant.nan == "clamp" else np.nan
        self.values["codes"] = np.where(self._finite, values, clamped)

    def _over(self, scales: Float64s) -> Float64s:
        """Return y divided by the value of the code 1, with as few roundings as possible."""
        if self.quant.direction == "multiply":
            return self.y * scales
        if self.quant.scale_type == "e4m3fn":
            return self.y * self._global_scale / scales
        return self.y / scales

    def _ratio(self, scale: float) -> Fraction:
        """Return the exact factor from y to codes."""
        if self.quant.direction == "multiply":
            return Fraction(scale)
        if self.quant.scale_type == "e4m3fn":
            return Fraction(self._global_scale) / Fraction(scale)
        return 1 / Fraction(scale)

    @property
    def _shared(self) -> Mask:
        """True where the scale belongs to a group in which a y is not finite."""
        if self.quant.is_static:
            return np.zeros(self.y.shape, bool)
        spread = self.quant.spread(self._broken, self.case.shape[1])
        return np.broadcast_to(spread, self.y.shape)

    def _code_errors(self, values: Float64s) -> ElementErrors:
        code, unit, quotient = self.quant.code, np.abs(self.code_unit), self._quotient
        low, high = code.cells(values)
        away = np.maximum(np.maximum(low - quotient, quotient - high), 0.0) * unit
        within = np.clip(quotient, -code.largest, code.largest)
        in_ulp = np.abs(values - within) / code.steps(within)
        # Below a power of two steps are smaller: some codes within one step are no neighbours.
        in_ulp = np.where(code.are_neighbours(values, within), in_ulp, np.maximum(in_ulp, 1.0))
        away, in_ulp = (
            np.where(self.y == 0, np.where(values == 0, 0.0, np.inf), each)
            for each in (away, in_ulp)
        )
        # For a scale that is not finite, or 0, no code is right: the scale is another error.
        is_scaled = np.isfinite(unit) & ((unit != 0) | (self.y == 0))
        measured = self._finite & ~self._shared & is_scaled
        correct = np.asarray(values == self.values["codes"])
        return ElementErrors.where(measured, away, in_ulp, correct)

    # Of the interface of `Expected`

    def type_error(self, output: str, result: Array) -> str:
        """Return the error in the type of a result, or an empty string."""
        kind = self.quant.code_type(output)
        if kind is None:
            return super().type_error(output, result)
        if result.dtype.name in kind.dtypes:
            return ""
        return f"{output} is {result.dtype.name}; it should be {' or '.join(kind.dtypes)}"

    def decoded(self, output: str, result: Array | None) -> Float64s | None:
        """Return a result as numbers in the shape of the answer, or None if that is impossible."""
        kind = self.quant.code_type(output)
        shape = self.wide[output].shape
        if result is None:
            return None
        if kind is not None:
            if result.dtype.itemsize != 1:
                return None
            result = np.ascontiguousarray(result).view(np.uint8)
            if output == "codes" and kind.name == "e2m1" and result.size < self.wide[output].size:
                high_first = self.quant.packed == "high-first"
                result = unpacked(result, high_first=high_first)[..., : shape[1]]
            result = kind.decode(result)
        if result.size != self.wide[output].size:
            return None
        if output == "sum":
            return result.reshape(shape)
        with np.errstate(all="ignore"):
            numbers: Float64s = result.astype(np.float64).reshape(shape)
            return numbers

    def element_errors(
        self, output: str, result: Array, *, bounds: AnswerBounds | None = None
    ) -> ElementErrors:
        """Return the error of each element of a decoded result."""
        with np.errstate(all="ignore"):
            if output == "codes":
                return self._code_errors(result)
            if output == "scale":
                return self._scale_errors(result)
            if output == "amax":
                exact, value = self.wide["amax"], np.asarray(self.values["amax"], np.float64)
                error, ulps = np.abs(result - exact), ulps_of(value, "float32")
                measured, rounded = np.isfinite(exact), (error - ulps / 2).clip(0)
                return ElementErrors.where(measured, rounded, error / ulps, result == value)
        return super().element_errors(output, result, bounds=bounds)

    def misplaced(self, output: str, result: Array, bounds: AnswerBounds | None = None) -> Mask:
        """Return True for each code times its scale that is finite where y is not.

        With ``nan=clamp``, return True for each that is not finite.
        """
        if output == "sum":
            return super().misplaced(output, result, bounds)
        if output != "codes":
            return np.zeros(result.shape, bool)
        with np.errstate(all="ignore"):
            finite = np.isfinite(result * self.code_unit)
        if self.quant.nan == "clamp":
            return np.asarray(~finite & (~self._finite | self._shared))
        if self.quant.is_static and np.isfinite(self.quant.code.values).all():
            return np.zeros(result.shape, bool)  # int8 has no such code
        return np.asarray(finite & ~self._finite)

    def scale(self, output: str, power: int = 0) -> Float64s:
        """Return the natural scale of each element, for errors like that power of kappa."""
        if output == "amax":
            return self.scales.of(output, power)
        return super().scale(output, power)

    def unit(self, output: str) -> float:  # noqa: ARG002 (of the interface)
        """Return the unit roundoff of the rows."""
        return unit_roundoff(self.case.dtype)

    def factor(self, output: str, power: int = 0) -> float:
        """Return K; amax has the K of y."""
        return super().factor("codes" if output == "amax" else output, power)

    def allowed(self, output: str, power: int = 0) -> Float64s:
        """Return the largest error allowed for each element: errors of y and of the scaling."""
        allowed = super().allowed(output, power)
        if output == "sum":
            return allowed
        wide = self.wide[output]
        return allowed + np.where(np.isfinite(wide), SCALING_ERROR * np.abs(wide), 0.0)

    # Exact elements

    def _element(self, i: int, j: int) -> LinearInRoot:
        """Return an element of y exactly."""
        row = i % (self.case.shape[0] // self.case.repeats)
        if row not in self._rows:
            self._rows[row] = ExactRows(self.case.part(slice(row, row + 1)), self.norm)
        rows = self._rows[row]
        element = rows.y_at(rows.rows[0], j)
        assert isinstance(element, LinearInRoot)
        return element


def answers_of(case: Case) -> QuantizedExpected:
    """Return the answers of a case of a quantized norm."""
    answers = expected(case)
    assert isinstance(answers, QuantizedExpected)
    return answers


def _times(element: LinearInRoot, factor: Fraction) -> LinearInRoot:
    over, under = factor.as_integer_ratio()
    return LinearInRoot(
        element.root, element.a * over, element.b * over, element.denominator * under
    )


def _square_minus(element: LinearInRoot, number: Fraction) -> float:
    """Return element**2 - number, rounded: its sign is exact.

    (a*r + b)**2 is linear in r too, since r**2 is rational.
    """
    root, a, b, denominator = element
    over, under = number.as_integer_ratio()
    square = a * a * root.denominator + b * b * root.numerator
    unit = denominator * denominator * root.numerator
    difference = LinearInRoot(
        root,
        2 * a * b * root.numerator * under,
        square * under - over * unit,
        unit * under,
    )
    return difference.round_to(FLOAT64)
