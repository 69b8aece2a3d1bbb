"""Causes of results in another form than is asked for, or of none: types, shapes, exceptions."""

from collections.abc import Sequence
from itertools import combinations, pairwise, product

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.diagnosis.diagnosis import cause_of
from truenorm.verify.diagnosis.evidence import Came, Seen, is_answer, right_in, where
from truenorm.verify.oracle import expected
from truenorm.verify.running.records import (
    AGAIN,
    INTERLEAVED,
    LATER,
    PLAIN,
    ROWS,
    TWICE,
    other_rows,
)
from truenorm.verify.types import FORMATS, Array, dtype_of, same_bits, unit_roundoff


def of_raised(output: str, seen: Sequence[Seen]) -> str:  # noqa: ARG001 (all of them)
    """Say in which cases it does not return, if a size decides."""
    ended = {record.failure for each in seen for record in each.records} - {""}
    # A case that was given up has no records, and says nothing.
    wrong = [each.case for each in seen if each.wrong]
    place = where(wrong, [each.case for each in seen if each.records and not each.wrong])
    alike = len({failure.split(":")[0] for failure in ended}) == 1
    return f"{place} it ends so, and nowhere else" if place and alike else ""


def of_type(output: str, seen: Sequence[Seen]) -> str:
    """Say whether a result was rounded before it got its type, or whose type that is."""
    results = [(each, result) for each in seen if (result := each.result(output)) is not None]
    kinds = {result.dtype.name for _, result in results}
    asked = {expected(each.case).types[output] for each, _ in results}
    if len(kinds) != 1 or len(asked) != 1 or not all(each.wrong for each, _ in results):
        return ""
    kind, right = kinds.pop(), asked.pop()
    if kind not in FORMATS:
        return ""
    if unit_roundoff(kind) >= unit_roundoff(right):
        same = [
            name
            for name, array in results[0][0].case.inputs.items()
            if array is not None and array.dtype.name == kind
        ]
        return f"{output} is in the type of {same[0]}" if same else ""
    if all(_is_of(result, right) for _, result in results):
        return f"{output} is rounded to {right}, and then turned into {kind}"
    return f"{output} is not rounded to {right}: it is left in {kind}"


def _is_of(result: Array, kind: str) -> bool:
    """Tell whether all numbers are of a narrower type."""
    with np.errstate(all="ignore"):
        narrow = result.astype(dtype_of(kind)).astype(result.dtype)
    return np.array_equal(narrow, result, equal_nan=True)


def of_shape(output: str, seen: Sequence[Seen]) -> str:
    """Say which axis is there that should not be, or where a result is missing."""
    wrong = [each for each in seen if each.wrong]
    results = [_as_returned(each, output) for each in wrong]
    if all(result is None for result in results):
        return _missing(output, wrong, [each for each in seen if not each.wrong])
    said = {
        "" if result is None else _axis(each, output, result)
        for each, result in zip(wrong, results, strict=True)
    }
    return said.pop() if len(said) == 1 else ""


def _as_returned(each: Seen, output: str) -> Array | None:
    return next((record.results.get(output) for record in each.of_kind(PLAIN)), None)


def _axis(each: Seen, output: str, result: Array) -> str:
    """Say what makes a result right: an axis of length 1 left out, or a sum over axes."""
    exact = expected(each.case)
    shape = exact.wide[output].shape
    by_rows = each.case.operation.is_rows(output)
    if result.shape == (each.case.in_layout(each.case.x).shape if by_rows else shape):
        return ""  # another call of the case has another
    if result.size == np.prod(shape) and right_in(exact, output, result.reshape(shape)).all():
        return f"the numbers of {output} are right: it has an axis of length 1 too many"
    axes = tuple(range(result.ndim - len(shape)))
    if not axes or result.shape[len(axes) :] != shape:
        return ""
    total = result.astype(np.float64).sum(axis=axes)
    if not right_in(exact, output, total).all():
        return ""
    return (
        f"not all axes of rows are summed over: the sum of {output} over its first axis is right"
    )


def _missing(output: str, without: Sequence[Seen], others: Sequence[Seen]) -> str:
    """Say which parameter is None wherever a result is missing, and given wherever it came."""
    for name in without[0].case.operation.inputs_of("parameter"):
        absent = {each.case.inputs.get(name) is None for each in without}
        elsewhere = {
            each.case.inputs.get(name) is None
            for each in others
            if _as_returned(each, output) is not None
        }
        if absent == {True} and elsewhere == {False}:
            return f"{output} is left out where {name} is None"
    return ""


def of_inputs(output: str, seen: Sequence[Seen]) -> str:  # noqa: ARG001 (all of them)
    """Say which result stands in the place of each input, if it does wherever that changed."""
    plain = [record for each in seen for record in each.of_kind(PLAIN)]
    names = dict.fromkeys(name for record in plain for name in record.damaged)
    said = []
    for name in names:
        damaged = [record.holds.get(name, ()) for record in plain if name in record.damaged]
        common = [held for held in damaged[0] if all(held in each for each in damaged)]
        if not common:
            return ""
        said.append(f"{' or '.join(common)} is written over {name}")
    return ", and ".join(said)


def of_overwritten(output: str, seen: Sequence[Seen]) -> str:
    """Say whether a result becomes that of the call after it."""
    held = [record.holds.get(output, ()) for each in seen for record in each.of_kind(LATER)]
    if not held or not all(output in names for names in held):
        return ""
    return f"each call writes {output} to the same memory: it holds that of the last call"


def of_stale(output: str, seen: Sequence[Seen]) -> str:
    """Say whether a gradient is right for the rows of another forward pass."""
    for each in (each for each in seen if each.wrong):
        result, case = each.result(output, INTERLEAVED), each.case
        data = {name: other_rows(case)[name] for name in case.operation.inputs_of("data")}
        if result is None or is_answer(case, output, result):
            return ""
        if not is_answer(case.with_inputs(**data), output, result):
            return ""
    return f"backward takes what the latest forward saved: {output} is right for the rows of that"


def of_spent(output: str, seen: Sequence[Seen]) -> str:
    """Say what hypothesis the gradients of a second backward pass are."""
    came = [
        Came(each.case, output, result, right=False)
        for each in seen
        if each.wrong and (result := each.result(output, TWICE)) is not None
    ]
    if not came:
        return ""
    words = cause_of(came, came[0].case.operation.hypotheses(output), partly=False).words
    return f"what forward saved is changed by backward: called again, {words}" if words else ""


def of_large(output: str, seen: Sequence[Seen]) -> str:
    """Say what the elements are that are in no right place of a large call."""
    held = {
        record.holds.get(output, ())
        for each in seen
        for record in each.records
        if each.wrong and output in record.results
    } - {()}
    return f"in one call, {output} is {held.pop()[0]}" if len(held) == 1 else ""


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
