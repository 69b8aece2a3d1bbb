"""Find the likely cause of wrong codes and scales: the hypothesis whose bits a result has."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.distinctions import FEW, distinguishing_size, is_likelier
from truenorm.verify.formulas.rounding import rounded
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.quantized.answers import Mask, answers_of
from truenorm.verify.norms.quantized.hypotheses import (
    ANY_SCALE,
    LARGEST_FLOAT32,
    Change,
    Hypothesis,
    Rows,
    Run,
    by_scales,
    code_hypotheses,
    codes_by_other_scales,
    own,
    scale_hypotheses,
)
from truenorm.verify.norms.quantized.recipes import NORMS, SCALING_NOISE, norms_of
from truenorm.verify.norms.recipes import RoundedComputation
from truenorm.verify.operation import Case
from truenorm.verify.types import Float64s, ulps_of

FITS = 0.9999
"""The share of decided elements, and of wrong decided elements, that a hypothesis must have."""
SURELY_NOT = 0.9
"""A hypothesis is given up after a case in which fewer elements fit."""
LARGEST_CASE = 2**16
"""Elements of cases that are compared."""
SMALLEST_FLOAT32 = 2.0**-149
BY_RIGHT_SCALES = Cause(
    "codes-of-right-scales", "codes are those of the right scales, not of the returned ones"
)


class _Wrong(NamedTuple):
    """The result of a case, decoded; `wrong` where it is no right answer."""

    case: Case
    result: Float64s
    scales: Float64s
    wrong: Mask
    compared: Mask


def _compared(norm: Norm, output: str, runs: Sequence[Run]) -> list[_Wrong]:
    """Return results of finite rows; failing cases and small cases come first."""
    every = []
    for case, results in runs:
        if case.kind == "special" or np.prod(case.shape) > LARGEST_CASE:
            continue
        answers = answers_of(case).given(results)
        result = answers.decoded(output, results.get(output))
        scales = np.asarray(case.inputs.get("scale", 1.0), np.float64).reshape(1, 1)
        if norm.quant.scale_type:
            returned = answers.decoded("scale", results.get("scale"))
            if returned is None:
                continue
            scales = returned
        if result is None or answers.values[output] is None:
            continue
        wrong = answers.element_errors(output, result).error > answers.allowed(output)
        compared = np.ones(result.shape, bool)
        if output == "scale":
            compared = (answers.amax > 0) & ~answers.is_floored(result)
        every.append(_Wrong(case, result, scales, np.asarray(wrong), compared))
    return sorted(every, key=lambda each: (not each.wrong.any(), each.result.size))


def _rows(norm: Norm, case: Case, scales: Float64s, recipe: tuple[str, str]) -> Rows:
    """Return y of a case by a recipe, with the scales of the call."""
    name, via = recipe
    computation = RoundedComputation(norm, case, norm.normalized(case))
    y, noise = computation.before_rounding(NORMS[name][0])
    noise = np.where(computation.decided, noise, ulps_of(np.nan_to_num(y), case.dtype))
    if not norm.centred:  # the sign of zero is that of x and gamma
        y = np.where(y == 0, computation.rows * case.gamma.astype(np.float64) * 0, y)
    low, high = (np.where(noise == 0, y, y + np.copysign(noise, y) * sign) for sign in (-1, 1))
    if via == "T":
        y, low, high = (np.copysign(rounded(each, case.dtype), each) for each in (y, low, high))
    if norm.quant.scale_type != "e8m0":
        low, high = low * (1 - SCALING_NOISE), high * (1 + SCALING_NOISE)
    return Rows(case, norm.quant, y, low, high, scales)


class Fit(NamedTuple):
    """The share of elements that fit a hypothesis; where they fit, and where it is decided."""

    cause: Cause
    share: float
    masks: Mask = np.zeros((2, 0), bool)

    def beside(self, other: "Fit") -> tuple[Mask, Mask]:
        """Return where two hypotheses fit, of the elements where both are decided."""
        (mine, decided), (theirs, also_decided) = self.masks, other.masks
        both = decided & also_decided
        return mine[both], theirs[both]


def _share(fit: Fit) -> float:
    return fit.share


def most_likely(fits: Sequence[Fit]) -> tuple[Cause, ...]:
    """Return the hypothesis that beats all others that fit, and those that are like it.

    Right scales are a simpler explanation of codes than scales that are hardly different.
    """
    fitting = [each for each in fits if each.share >= FITS]
    if not fitting:
        return ()
    best = max(fitting, key=_share)
    pairs = [(each, best.beside(each)) for each in fitting]
    alike = [each for each, pair in pairs if np.not_equal(*pair).sum() < FEW]
    if not all(is_likelier(*pair) for _, pair in pairs if np.not_equal(*pair).sum() >= FEW):
        return ()
    causes = tuple(each.cause for each in alike)
    return (BY_RIGHT_SCALES,) if BY_RIGHT_SCALES in causes else causes


class _Search:
    """Compares hypotheses with the results of one output; y by each recipe is computed once."""

    def __init__(self, norm: Norm, output: str, runs: Sequence[Run]) -> None:
        self.norm, self.output = norm, output
        self.compared = _compared(norm, output, runs)
        self.recipes = [(name, via) for name in norms_of(norm) for via in ("T", "direct")]
        self._rows: dict[tuple[int, Change | None, tuple[str, str]], Rows | None] = {}

    @property
    def is_wrong(self) -> bool:
        """True if a result is wrong."""
        return any(each.wrong.any() for each in self.compared)

    def find(self, hypotheses: Sequence[Hypothesis]) -> tuple[Cause, ...]:
        """Return the hypotheses that fit best, with the sizes where they fit."""
        if not self.is_wrong:
            return ()
        best = self._best(hypotheses, self.compared)
        if best:
            return best
        failing = [each for each in self.compared if each.wrong.any()]
        right = [each.case for each in self.compared if not each.wrong.any()]
        sizes = distinguishing_size([each.case for each in failing], right)
        best = self._best(hypotheses, failing) if sizes else ()
        return tuple(each.with_words(f"{each.words} where {sizes}") for each in best)

    def _best(
        self, hypotheses: Sequence[Hypothesis], cases: Sequence[_Wrong]
    ) -> tuple[Cause, ...]:
        """Return the most likely hypotheses about cases, each by its best recipe."""
        return most_likely(
            [
                max((self._fit(each, recipe, cases) for recipe in self.recipes), key=_share)
                for each in hypotheses
            ]
        )

    def _fit(
        self, hypothesis: Hypothesis, recipe: tuple[str, str], cases: Sequence[_Wrong]
    ) -> Fit:
        """Compare the results of cases with a hypothesis, until one hardly fits.

        The share is that of decided elements that fit, or of wrong ones if that is less.
        """
        none = Fit(hypothesis.cause, 0.0)
        masks, (equal, total, equal_wrong, total_wrong, wrong) = [], np.zeros(5, int)
        for each in cases:
            rows = self._of(each, hypothesis.change, recipe)
            if rows is None:
                return none
            fits, decided = _fits(hypothesis, rows, each, self.output)
            decided &= each.compared
            fits &= decided
            masks.append(np.array([fits, decided]).reshape(2, -1))
            equal, total = equal + fits.sum(), total + decided.sum()
            equal_wrong += (fits & each.wrong).sum()
            total_wrong += (decided & each.wrong).sum()
            wrong += each.wrong.sum()
            if equal < SURELY_NOT * total or equal_wrong < SURELY_NOT * total_wrong:
                return none
        if not total or 2 * total_wrong < wrong:
            return none
        share = min(equal / total, equal_wrong / total_wrong)
        return none._replace(share=float(share), masks=np.concatenate(masks, axis=1))

    def _of(self, each: _Wrong, change: Change | None, recipe: tuple[str, str]) -> Rows | None:
        key = (id(each.case), change, recipe)
        if key not in self._rows:
            case = each.case if change is None else change(each.case)
            rows = None if case is None else _rows(self.norm, case, each.scales, recipe)
            if rows and self.output == "codes":
                rows = replace(rows, of_zeros=each.scales)
            self._rows[key] = rows
        return self._rows[key]


def _fits(hypothesis: Hypothesis, rows: Rows, each: _Wrong, output: str) -> tuple[Mask, Mask]:
    """Return where a result is as predicted, and where noise cannot change the prediction."""
    middle, low, high = (hypothesis.predict(rows, y) for y in (rows.y, rows.low, rows.high))
    if output == "scale" and rows.quant.scale_type == "float32":
        low, high = np.minimum(low, high), np.maximum(low, high)
        room = SCALING_NOISE * np.abs(middle) + SMALLEST_FLOAT32
        fits = (low - room <= each.result) & (each.result <= high + room)
        fits |= (np.abs(middle) > LARGEST_FLOAT32) & np.isinf(each.result)
        return np.asarray(fits), np.asarray(middle != ANY_SCALE)
    same = (low == high) | (np.isnan(low) & np.isnan(high))
    same &= (
        middle != ANY_SCALE if output == "scale" else hypothesis.scales_zeros | (rows.unit != 0)
    )
    result = each.result
    if output == "codes" and rows.quant.code.name == "int8":  # some saturate at -128
        middle, result = (np.maximum(both, -rows.quant.code.largest) for both in (middle, result))
    fits = (middle == result) | (np.isnan(middle) & np.isnan(result))
    return np.asarray(fits), np.asarray(same)


@np.errstate(all="ignore")
def find_cause(
    norm: Norm, output: str, runs: Sequence[Run], *, special: bool = False
) -> tuple[tuple[Cause, ...], int]:
    """Return the likely causes of a wrong output, and the number of hypotheses."""
    if output == "sum":
        return _cause_of_sum(runs), 2
    if output == "amax":
        return _cause_of_amax(runs), 1
    of_scale = list(scale_hypotheses(norm, runs)) if norm.quant.scale_type else []
    of_codes = list(code_hypotheses(norm, runs))
    causes = _Search(norm, "scale", runs).find(of_scale) if of_scale else ()
    if output == "scale":
        return causes, len(of_scale)
    search = _Search(norm, "codes", runs)
    if not (causes and special):
        by_right = [Hypothesis(BY_RIGHT_SCALES, partial(by_scales, own), scales_zeros=True)]
        of_other = [*by_right, *codes_by_other_scales(of_scale)] if of_scale else []
        found = search.find([*of_codes, *of_other])
        causes = causes if found == (BY_RIGHT_SCALES,) and (causes or special) else found
    if special and not search.is_wrong and not causes:
        causes = _fate_of_nan(runs)
    return causes, len(of_scale) + len(of_codes)


def _fate_of_nan(runs: Sequence[Run]) -> tuple[Cause, ...]:
    """Return the code that stands for NaN, if it is always the same."""
    sizes: set[float] = set()
    for case, results in runs:
        codes = answers_of(case).decoded("codes", results.get("codes"))
        if case.kind == "special" and codes is not None:
            sizes |= set(np.abs(codes[~np.isfinite(answers_of(case).y)]).tolist())
    largest = runs[0][0].operation.quant.code.largest  # type: ignore[attr-defined]
    if sizes == {largest}:
        return (Cause("nan-as-largest", "NaN is clamped to the largest code"),)
    return (Cause("nan-as-0", "NaN is written as 0"),) if sizes == {0.0} else ()


def _cause_of_sum(runs: Sequence[Run]) -> tuple[Cause, ...]:
    for name, other in (("residual", "x"), ("x", "the residual")):
        if all(
            np.array_equal(getattr(case, name).ravel(), total.ravel(), equal_nan=True)
            for case, results in runs
            if (total := results.get("sum")) is not None
        ):
            words = f"sum is {'the ' * (name != 'x')}{name}: {other} is not added"
            return (Cause(f"sum-of-{name}-alone", words),)
    return ()


def _cause_of_amax(runs: Sequence[Run]) -> tuple[Cause, ...]:
    for case, results in runs:
        answers, returned = answers_of(case), results.get("amax")
        if returned is None or case.kind == "special" or answers.wide["amax"][0] == 0:
            continue
        scaled = answers.wide["amax"] / float(np.abs(answers.code_unit).flat[0])
        room = answers.allowed("amax") * scaled / answers.wide["amax"]
        if not np.abs(returned.reshape(1) - scaled) <= room:
            return ()
    return (Cause("amax-after-scaling", "amax is that of y after scaling"),)
