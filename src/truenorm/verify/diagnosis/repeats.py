"""Find why equal calls return different bits, or why results depend on earlier calls."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.calls import AGAIN
from truenorm.verify.causes import EARLIER_CALLS, Cause
from truenorm.verify.diagnosis.accuracy import MIN_CASES
from truenorm.verify.diagnosis.behaviour import CaseRecords, computed, is_accurate
from truenorm.verify.diagnosis.matches import distance
from truenorm.verify.oracle import expected, output_types
from truenorm.verify.types import FORMATS, ulps_of

MIN_ULPS = 64
"""An answer of so many ulp of the results shows that it was added to one of them."""
MIN_TERMS = 3
"""Only sums of at least this many terms depend on the order of additions."""
PARTS: dict[str, tuple[slice, ...]] = {
    "last element of the last row": (slice(-1, None), slice(-1, None)),
    "first element of the first row": (slice(1), slice(1)),
    "last row": (slice(-1, None), slice(None)),
    "first row": (slice(1), slice(None)),
    "last column": (slice(None), slice(-1, None)),
    "first column": (slice(None), slice(1)),
}
"""Parts of a result that a kernel may leave unwritten, the smallest first."""


KEPT_STATE = Cause(
    f"{EARLIER_CALLS}kept-state",
    "results depend on earlier calls: state is kept between calls (a workspace or cache that is "
    "not cleared, or is keyed by too little)",
)
NOT_CLEARED = Cause(
    f"{EARLIER_CALLS}not-cleared",
    "results depend on earlier calls: {} is added to that of earlier calls, and never cleared",
)
MEMORY = Cause(
    f"{EARLIER_CALLS}memory",
    "results depend on earlier calls: {} has numbers from memory that the call did not write",
)
MOST_ROWS, MOST_TIMES = 4, 2
"""Rows of a case whose sums are compared with all sums that a race may leave: each row is left
out, or counted up to so many times."""


def explain_history(output: str, cases: Sequence[CaseRecords]) -> Cause:  # noqa: ARG001
    """Return the only cause of results that are repeatable but differ after other calls."""
    return KEPT_STATE


class _TwoRuns(NamedTuple):
    """Two results of the same call: which elements differ, and which are right in both."""

    differs: NDArray[np.bool_]
    accurate: NDArray[np.bool_]
    terms: int


def explain_repeat(output: str, cases: Sequence[CaseRecords]) -> Cause | None:
    """Tell a varying order of additions, elements never written and sums that are not cleared."""
    by_rows = cases[0].case.operation.is_rows(output)
    is_float = output_types(cases[0].case)[output] in FORMATS
    if is_float and _is_added(output, cases):
        return NOT_CLEARED.of(output)
    runs = []
    for each in cases:
        one, other = each.result(output), each.result(output, AGAIN)
        if one is not None and other is not None:
            exact = expected(each.case)
            differs = np.asarray(one != other)
            # Codes are right for some scale, so only what varies is wrong for sure.
            accurate = (
                is_accurate(exact, output, one) & is_accurate(exact, output, other)
                if is_float
                else ~differs
            )
            terms = each.case.shape[1 if by_rows else 0]
            runs.append(_TwoRuns(differs, accurate, terms))
    different = [run for run in runs if run.differs.any()]
    if len(different) < MIN_CASES:
        return None
    if all(run.accurate.all() for run in runs):
        axis = "a row" if by_rows else "rows"
        words = f"sums over {axis} are added in a different order each time; all are right"
        few = min(run.terms for run in different) < MIN_TERMS
        return None if few else Cause("order-of-additions", words)
    if by_rows:
        return _unwritten_part(runs)
    of_memory = is_float and _is_of_memory(output, cases)
    return MEMORY.of(output) if of_memory else None


def _is_of_memory(output: str, cases: Sequence[CaseRecords]) -> bool:
    """Return True if results vary by numbers that are no sums of the terms of their rows.

    A race leaves out terms, or counts some twice. Some results must be right: a wrong formula has
    other terms.
    """
    telling, is_right = 0, False
    for each in cases:
        one, other, count = each.result(output), each.result(output, AGAIN), each.case.shape[0]
        if one is None or other is None or count > MOST_ROWS:
            continue
        exact = expected(each.case)
        accurate = is_accurate(exact, output, one) & is_accurate(exact, output, other)
        is_right |= bool(accurate.all() and exact.wide[output].any())
        if not each.wrong:
            continue
        rows = [each.case.part(slice(row, row + 1)) for row in range(count)]
        terms = np.array([computed(row).wide[output] for row in rows])
        times = np.array([*product(range(MOST_TIMES + 1), repeat=count)])
        with np.errstate(all="ignore"):
            sums, allowed = times @ terms, (MOST_TIMES + 1) * exact.allowed(output)
            varies = distance(one.astype(np.float64), other.astype(np.float64)) > allowed
            strange = [
                (distance(result.astype(np.float64), sums) > allowed).all(axis=0)
                for result in (one, other)
            ]
        finite = np.isfinite(terms).all(axis=0)
        telling += bool((finite & varies & (strange[0] | strange[1])).any())
    return is_right and telling >= MIN_CASES


def _is_added(output: str, cases: Sequence[CaseRecords]) -> bool:
    """Return True if every repeated call returns its answer plus the result before it."""
    telling = 0
    for each in cases:
        one, other = each.result(output), each.result(output, AGAIN)
        if not each.wrong or one is None or other is None:
            continue
        exact = expected(each.case)
        right, first, second = (
            exact.wide[output],
            *(result.astype(np.float64) for result in (one, other)),
        )
        with np.errstate(all="ignore"):
            ulps = ulps_of(np.maximum(np.abs(first), np.abs(second)), exact.types[output])
            added = np.abs(second - first - right) <= exact.allowed(output) + 2 * ulps
            finite = np.isfinite(first) & np.isfinite(second) & np.isfinite(right)
            shown = finite & (np.abs(right) > MIN_ULPS * ulps)
        if not added[finite].all():
            return False
        telling += bool(shown.any())
    return telling >= MIN_CASES


def _unwritten_part(runs: Sequence[_TwoRuns]) -> Cause | None:
    """Name the part outside of which all elements are right and repeatable."""
    for place, part in PARTS.items():
        if all(_all_outside(run.accurate & ~run.differs, part) for run in runs):
            words = f"the {place} is not written: only its values are wrong, and they vary"
            return Cause(f"unwritten({place})", words)
    return None


def _all_outside(mask: NDArray[np.bool_], part: tuple[slice, ...]) -> bool:
    rest = mask.copy()
    rest[part] = True
    return bool(rest.all())
