"""Two arrays bit by bit: where they differ, by how much, and which is nearer to the answer.

Any NaN is equal to any other: what its bits are depends on the processor, and nobody reads them.
A zero is not equal to one of the other sign, although both are the same number.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.answers.expected import Expected, expected
from truenorm.verify.answers.question import types_of
from truenorm.verify.equal.report import Difference
from truenorm.verify.grading.measuring import all_misplaced, apart
from truenorm.verify.operation import Case
from truenorm.verify.own.cases import is_own
from truenorm.verify.types import FORMATS, Array, Float64s, ulps_of

__all__ = ["difference", "distances"]

ANSWERED = 2**14
"""Elements of a case of one's own for which integers are asked: more would take minutes."""


def distances(first: Array, second: Array) -> Float64s:
    """Return how far two arrays are apart, in ulp of the larger; infinite where one is not finite.

    Not in numbers of the type between the two: of these there are millions between 1e-30 and
    -1e-30, and the worst element would always be one next to zero.

    Examples
    --------
    >>> distances(np.float32([1, 2, np.nan, 0.0]), np.float32([1, 2.0000002, 3, -0.0])).tolist()
    [0.0, 1.0, inf, 0.0]
    """
    with np.errstate(all="ignore"):
        one, other = (each.astype(np.float64) for each in (first, second))
        finite = np.isfinite(one) & np.isfinite(other)
        larger = np.where(finite, np.maximum(np.abs(one), np.abs(other)), 0.0)
        ulps = ulps_of(larger, first.dtype.name)
        apart = np.where(finite, np.abs(one / ulps - other / ulps), np.inf)
    return np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, apart)


def difference(case: Case, output: str, first: Array, second: Array) -> Difference | None:
    """Compare a result of two subjects, each as it was returned; return nothing if it is equal."""
    place = (case.name, case.dtype, output, case.why)
    if first.shape != second.shape or first.dtype != second.dtype:
        one, other = (f"{each.dtype.name} of shape {each.shape}" for each in (first, second))
        return Difference(
            *place, words=f"{output} is {one} from the first, {other} from the other"
        )
    shape = case.shape if case.operation.is_rows(output) else (1, case.shape[1])
    known = first.dtype.name in FORMATS and output in types_of(case)
    if not known or first.size != shape[0] * shape[1]:  # both are wrong, perhaps not equally so
        equal = np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
        what = f"{first.dtype.name} of shape {first.shape}"
        words = f"{output} is {what} from both, as it should not be, and not equal"
        return None if equal else Difference(*place, words=words)
    first, second = (np.ascontiguousarray(each).reshape(shape) for each in (first, second))
    bits = f"u{first.dtype.itemsize}"
    differs = first.view(bits) != second.view(bits)
    differs &= ~(np.isnan(first) & np.isnan(second))
    if not differs.any():
        return None
    apart = distances(first, second)
    spot = np.unravel_index(int(np.argmax(np.where(differs, apart, -1.0))), apart.shape)
    at = tuple(map(int, spot))
    return _judged(
        case,
        Difference(
            *place,
            int(differs.sum()),
            differs.size,
            float(apart[at]),
            at if case.operation.is_rows(output) else at[1:],
            float(first[at]),
            float(second[at]),
        ),
        differs,
        (first, second),
        at,
    )


def _judged(
    case: Case,
    found: Difference,
    differs: NDArray[np.bool_],
    results: tuple[Array, Array],
    at: tuple[int, ...],
) -> Difference:
    """Add to a difference which of the two is nearer to the exact answer."""
    rows = _judged_rows(case, found.output, differs, at[0])
    if rows is None:
        return found
    if len(rows) < len(differs):
        case = case.with_inputs(**{name: array[rows] for name, array in case.rows.items()})
    exact, here = expected(case), differs[rows]
    one, other = (_errors(exact, found.output, each[rows])[here] for each in results)
    spot = int(np.flatnonzero(rows == at[0])[0]), at[1]
    return replace(
        found,
        exact=float(exact.wide[found.output].reshape(here.shape)[spot]),
        judged=int(here.sum()),
        first_nearer=int((one < other).sum()),
        second_nearer=int((other < one).sum()),
        first_ulp=float(one.max()),
        second_ulp=float(other.max()),
    )


def _judged_rows(
    case: Case, output: str, differs: NDArray[np.bool_], worst: int
) -> NDArray[np.intp] | None:
    """Return the rows to hold against exact answers: all, or as many as there is time for."""
    if not is_own(case) or case.shape[0] * case.shape[1] <= ANSWERED:
        return np.arange(len(differs))
    if not case.operation.is_rows(output):
        return None  # every row has a part in it
    rows = np.flatnonzero(differs.any(axis=1))
    rest = rows[rows != worst][: max(ANSWERED // case.shape[1] - 1, 0)]
    return np.sort(np.append(rest, worst))


def _errors(exact: Expected, output: str, result: Array) -> Float64s:
    """Return errors in ulp: infinite where one is finite that should not be, or the reverse."""
    got = result.reshape(exact.wide[output].shape)
    error = apart(exact, output, got).in_ulp
    return np.where(all_misplaced(exact, output, got), np.inf, error).reshape(result.shape)
