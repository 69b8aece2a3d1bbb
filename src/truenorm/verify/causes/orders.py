"""Causes of other bits: sums in another order, memory that is not written, sizes of a batch."""

from collections.abc import Sequence
from itertools import combinations, pairwise, product

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.answers.expected import expected
from truenorm.verify.causes.seen import Seen, right_in
from truenorm.verify.runs.calls import AGAIN, PLAIN, ROWS
from truenorm.verify.types import Array, same_bits

__all__ = ["of_batch", "of_position", "of_repeat"]

ORDERED = 3
"""So many terms can be added up in several orders; of two, all sums have the same bits."""
CASES = 2
PLACES: dict[str, tuple[slice, ...]] = {
    "the last element of the last row": (slice(-1, None), slice(-1, None)),
    "the first element of the first row": (slice(1), slice(1)),
    "the last row": (slice(-1, None), slice(None)),
    "the first row": (slice(1), slice(None)),
    "the last column": (slice(None), slice(-1, None)),
    "the first column": (slice(None), slice(1)),
}
"""By words: a part of a result. Those that are within others come first."""


class _Twice:
    """Two results of the same call."""

    def __init__(self, each: Seen, output: str, one: Array, other: Array) -> None:
        exact = expected(each.case)
        self.rows, self.size = each.case.shape
        self.differs = np.asarray(one != other)
        self.right = right_in(exact, output, one) & right_in(exact, output, other)


def of_repeat(output: str, seen: Sequence[Seen]) -> str:
    """Say why the same call has other bits: roundings, or elements that nobody writes."""
    twice = []
    for each in seen:
        one, other = each.result(output), each.result(output, AGAIN)
        if one is not None and other is not None and one.shape == other.shape:
            twice.append(_Twice(each, output, one, other))
    different = [both for both in twice if both.differs.any()]
    if len(different) < CASES:
        return ""
    if all(both.right.all() for both in twice):
        by_rows = seen[0].case.operation.is_rows(output)
        terms = min(both.size if by_rows else both.rows for both in different)
        what = "a row" if by_rows else "rows"
        said = f"sums over {what} are added up in another order each time: all of them are right"
        return said if terms >= ORDERED else ""
    return _not_written(twice) if seen[0].case.operation.is_rows(output) else ""


def _not_written(twice: Sequence[_Twice]) -> str:
    """Name the part of a result in which all that differs lies, if everything else is right."""
    for words, place in PLACES.items():
        if all(_outside(both.right, place) and _outside(~both.differs, place) for both in twice):
            return f"{words} is not written: it alone is wrong, and another number each time"
    return ""


def _outside(true: NDArray[np.bool_], place: tuple[slice, ...]) -> bool:
    """Tell whether something is true of all elements outside a part."""
    rest = true.copy()
    rest[place] = True
    return bool(rest.all())


def of_position(output: str, seen: Sequence[Seen]) -> str:
    """Say in blocks of how many rows the place of a row decides, if it does."""
    results = [(each, each.result(output)) for each in seen if each.wrong]
    blocks = {
        block
        for each, result in results
        if result is not None and (block := _block(each, np.ascontiguousarray(result)))
    }
    if len(blocks) != 1:
        return ""
    return f"the bits of a row depend on its place in a block of {blocks.pop()} rows"


def _block(each: Seen, result: Array) -> int:
    """Return the smallest power of two by whose multiples places are alike, or 0.

    Of an odd number of rows that are repeated, each comes to the same place of a block after so
    many copies as the block has rows.
    """
    rows, repeats = each.case.shape[0], each.case.repeats
    copies = result.view(np.uint8).reshape(repeats, -1)
    if rows // repeats % 2 == 0 or (copies == copies[0]).all():
        return 0
    blocks = [2**power for power in range(1, (repeats // 2).bit_length())]
    return next((each for each in blocks if (copies[each:] == copies[:-each]).all()), 0)


def of_batch(output: str, seen: Sequence[Seen]) -> str:
    """Say from how many rows on a batch is computed otherwise, if a number of rows decides."""
    found: set[tuple[int, int]] | None = None
    for each in (each for each in seen if each.wrong):
        switches = _switches(each, output)
        found = switches if found is None else found & switches
    if found is None or len(found) != 1:
        return ""
    below, above = found.pop()
    return f"batches of up to {below} rows are computed otherwise than those of {above} or more"


class _Batch:
    """The rows from start to stop, computed in one call."""

    def __init__(self, start: int, result: Array) -> None:
        self.start, self.stop, self.result = start, start + len(result), result

    @property
    def size(self) -> int:
        return self.stop - self.start

    def agrees(self, other: "_Batch") -> bool:
        """Tell whether rows in both have the same bits."""
        start, stop = max(self.start, other.start), min(self.stop, other.stop)
        if start >= stop:
            return True
        mine, theirs = (
            each.result[start - each.start : stop - each.start] for each in (self, other)
        )
        if mine.dtype != theirs.dtype:
            return False
        return same_bits(np.ascontiguousarray(mine), np.ascontiguousarray(theirs))


def _switches(each: Seen, output: str) -> set[tuple[int, int]]:
    """Return between which sizes bits may change, so that on either side all are the same."""
    batches = [
        _Batch(record.call.start, result)
        for record in (*each.of_kind(PLAIN), *each.of_kind(ROWS))
        if (result := record.results.get(output)) is not None and result.ndim
    ]
    sizes = sorted({batch.size for batch in batches})
    found = set()
    for below, above in pairwise(sizes):
        small = [batch for batch in batches if batch.size <= below]
        large = [batch for batch in batches if batch.size >= above]
        same = all(
            one.agrees(other) for side in (small, large) for one, other in combinations(side, 2)
        )
        if same and not all(one.agrees(other) for one, other in product(small, large)):
            found.add((below, above))
    return found
