"""Compare the result of a case with what a hypothesis predicts, within its rounding errors."""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.distinctions import Mask
from truenorm.verify.formulas.rounding import rounded
from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.oracle import FLOAT32_ROUNDOFF, expected
from truenorm.verify.types import FORMATS, Array, Float64s, ulps_of

MIN_RATIO = 4.0
"""A result must be this many times closer to a hypothesis than the exact answer is."""
RECENT = 256
"""Cases whose unchanged steps stay in memory."""
AT_ONCE = 2**16
"""Elements of the results of hypotheses that are computed before they are compared."""
CLOSE = 2.0**-6
"""Relative distance of a result from a hypothesis whose own roundings may explain it."""
NOISE = 1 / 8
"""These errors, relative to the largest that are allowed."""


NO_ELEMENTS: Mask = np.zeros(0, bool)


class Evidence(NamedTuple):
    """A result that a subject returned. `correct` marks a control case."""

    case: Case
    output: str
    result: Array
    correct: bool


class Match(NamedTuple):
    """A hypothesis compared with the result of one case.

    What follows `fits` counts if the hypothesis fits. `telling` is the number of elements in
    which the hypothesis differs from the exact answer and from the unchanged steps. It is 0 unless
    that difference is far larger than its distance from the result. `distance` and `contrast` are
    the root mean square of the distance of `values` from the result, and of that difference,
    relative to the tolerance.
    """

    values: Float64s  # the result by the hypothesis
    tolerance: Float64s  # how far the result may be from `values`
    defined: bool  # `values` is not NaN everywhere
    differs: bool  # from the exact answer, by more than is allowed
    fits: bool  # the result is within the tolerance
    telling: int = 0
    distance: float = math.inf
    contrast: float = 0.0
    ulp: float = math.inf  # largest distance from the result
    share: float = 0.0  # of the error of the result that the hypothesis explains
    same: Mask = NO_ELEMENTS  # elements of the result that are `values`, rounded


def sizes_of(values: Float64s, ndim: int = 0) -> Float64s:
    """Return magnitudes, at least the root mean square of the row: see `_row_rms`."""
    return np.maximum(np.abs(values), _row_rms(values, ndim))


def compare_with_hypotheses(
    evidence: Evidence, hypotheses: Sequence[tuple[Cause, Hypothesis]], power: int = 0
) -> Iterator[Match]:
    """Compare the result of one case with each hypothesis, for errors like a power of kappa."""
    at_once = max(1, AT_ONCE // max(1, evidence.result.size))
    for start in range(0, len(hypotheses), at_once):
        yield from _compare(evidence, hypotheses[start : start + at_once], power)


def _compare(
    evidence: Evidence, hypotheses: Sequence[tuple[Cause, Hypothesis]], power: int
) -> Iterator[Match]:
    """Compare the result of one case with hypotheses whose results are the rows of one array."""
    (case, output, result, correct), exact = evidence, expected(evidence.case)
    right, kind = exact.wide[output], exact.types[output]
    axes = tuple(range(1, right.ndim + 1))
    with np.errstate(all="ignore"):
        values = np.empty((len(hypotheses), *right.shape))
        for place, (_, hypothesis) in enumerate(hypotheses):
            values[place] = hypothesis(case)
        # Above the range of the type, the result is infinite.
        overflow = np.abs(values) >= np.ldexp(1.0, FORMATS[kind].limit)
        values = np.where(overflow, np.copysign(np.inf, values), values)
        tolerance = _tolerance(evidence, values, power)
        returned = result.astype(np.float64)
        from_result = np.where(exact.undefined(output), 0.0, distance(returned, values))
        close = (from_result <= tolerance + CLOSE * np.abs(values)).all(axis=axes)
        for place in np.flatnonzero(close).tolist():
            own = case.operation.knowledge.scale_of(output, hypotheses[place][0], case)
            own = exact.unit(output) * _roundings(evidence) * own
            tolerance[place] = np.maximum(tolerance[place], own)
        from_exact, allowed = distance(values, right), exact.allowed(output, power)
        from_right = np.minimum(from_exact, distance(values, _unchanged(case, output)))
        rms_distance, contrast = (_rms(each / tolerance) for each in (from_result, from_right))
        tells = rms_distance * MIN_RATIO <= contrast
        ulps = ulps_of(sizes_of(_finite(values), right.ndim), kind)
        fits: Array = np.asarray((from_result <= tolerance).all(axis=axes))
        columns = [
            ~np.isnan(values).all(axis=axes),
            (from_exact > allowed).any(axis=axes),
            fits,
            np.where(tells, (from_right > allowed).sum(axis=axes), 0),
            rms_distance,
            contrast,
            (from_result / ulps).max(axis=axes, initial=0.0),
            [
                _share(evidence, values[place], tolerance[place]) if fit and not correct else 0.0
                for place, fit in enumerate(fits)
            ],
        ]
        numbers = (np.asarray(each).tolist() for each in columns)
        return map(Match, values, tolerance, *numbers, rounded(values, kind) == returned)


@lru_cache(maxsize=RECENT)
def _unchanged(case: Case, output: str) -> Float64s:
    """Return an output by the steps of the hypotheses with none changed, in float64."""
    unchanged = case.operation.knowledge.unchanged(output)
    exact = expected(case).wide[output]
    return exact if unchanged is None else np.broadcast_to(unchanged(case), exact.shape)


def distance(one: Float64s, other: Float64s) -> Float64s:
    """Return elementwise distances: 0 between equal infinities or two NaN, else inf for NaN."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    difference = np.abs(one - other)
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def _share(evidence: Evidence, values: Float64s, tolerance: Float64s) -> float:
    """Return the share of the error of a result that is explained; a result is rounded once."""
    exact, output = expected(evidence.case), evidence.output
    result = evidence.result.astype(np.float64)
    errors = distance(result, exact.number(output))
    rest = distance(result, rounded(values, exact.types[output]))
    return explained_share(errors / tolerance, rest / tolerance)


def explained_share(errors: Float64s, rest: Float64s) -> float:
    """Return the share of errors that is explained, from what a cause leaves of them.

    It is the share of the squared errors. Infinite errors count alone: a cause explains them if it
    leaves nothing.

    Examples
    --------
    >>> explained_share(np.array([3.0, 4.0]), np.array([0.3, -0.4]))
    0.99
    """
    infinite = ~np.isfinite(errors)
    if infinite.any():
        return float((rest[infinite] == 0).mean())
    total, left = _rms(np.array([errors, rest])).tolist()
    return 1 - (left / total) ** 2 if total else 0.0


def _rms(values: Float64s) -> Float64s:
    """Return the root mean square of each array along the first axis."""
    squares = values.reshape(len(values), -1) ** 2
    return np.asarray(np.sqrt(squares.mean(axis=1)) if squares.size else np.zeros(len(values)))


def _finite(values: Float64s) -> Float64s:
    return np.where(np.isfinite(values), values, 0.0)


def _row_rms(values: Float64s, ndim: int = 0) -> Float64s:
    """Return the root mean square along the last axis, ignoring non-finite elements.

    Of one number for each row, it is that of all rows. `ndim` is the number of axes of a result
    where `values` has several results.
    """
    axis = -1 if values.shape[-1] > 1 or (ndim or values.ndim) < 2 else -2
    return np.asarray(np.sqrt((_finite(values) ** 2).mean(axis=axis, keepdims=True)))


def _tolerance(evidence: Evidence, values: Float64s, power: int = 0) -> Float64s:
    """Return how far a result may be from each hypothesis: one ulp and a few roundings.

    The roundings are relative to the natural scale, multiplied by the ratio of the rows of the
    hypothesis to those of the exact answer. With a power, float32 roundings that grow like that
    power of kappa are added, as a kernel without the bug may have them: fewer than would be
    allowed, or another bug could hide there.
    """
    exact, output = expected(evidence.case), evidence.output
    sizes = _row_rms(values, values.ndim - 1)
    ratio = sizes / _row_rms(exact.wide[output])
    rounding = exact.unit(output) * _roundings(evidence)
    allowed = rounding * exact.scale(output)
    if power:
        unit = min(exact.unit(output), FLOAT32_ROUNDOFF)
        allowed += NOISE * unit * exact.factor(output, power) * exact.scale(output, power)
    allowed = np.where(np.isfinite(ratio), ratio * allowed, rounding * sizes)
    ulps = ulps_of(_finite(values), exact.types[output])
    return np.asarray(ulps + allowed + rounding * np.abs(_finite(values)))


def _roundings(evidence: Evidence) -> float:
    """Return the factor K of the tolerance, smaller in types of 16 bits.

    The K of a right result would let one bug pass for another there. Two intermediate roundings
    are allowed; in a sum over rows, two of each term.
    """
    exact, case, output = expected(evidence.case), evidence.case, evidence.output
    factor, unit = exact.factor(output), exact.unit(output)
    if unit <= FLOAT32_ROUNDOFF:
        return factor
    terms = 1 if case.operation.is_rows(output) else max(case.shape[0], 1)
    return 2 / math.sqrt(terms) + factor * FLOAT32_ROUNDOFF / unit
