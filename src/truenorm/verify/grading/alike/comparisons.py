"""The bits of other calls, held against those of the plain one."""

from collections.abc import Collection, Iterator

import numpy as np

from truenorm.verify.grading.alike.symptom import Symptom
from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import (
    AGAIN,
    IDLE,
    INTERLEAVED,
    LATER,
    OF_GRADIENTS,
    PLAIN,
    REVERSED,
    ROWS,
    SAME_ROWS,
    TWICE,
    Call,
    Record,
    matching,
)
from truenorm.verify.types import FORMATS, Array, same_bits

__all__ = ["comparisons", "repeat_guard"]

OTHER_BITS = {
    LATER: ("overwritten", "is overwritten when more calls follow"),
    INTERLEAVED: ("stale", "changes if another forward pass comes before backward"),
    TWICE: ("spent", "changes if backward is called a second time with what forward saved"),
    **{
        kind: ("layout", f"changes if the gradients that backward is given are {layout}")
        for kind, layout in OF_GRADIENTS.items()
    },
}
"""Calls whose results must have the bits of the plain one; the guard, and what it says if not."""
BELOW_THEM = {"zeros below": "zeros", "not finite below": "NaN and infinity"}
COPIED = ("batch", "batch-sizes")
"""Families whose rows stand in one call several times, at places of every kind."""


def comparisons(
    case: Case, records: Collection[Record], outputs: Collection[str]
) -> Iterator[Symptom]:
    """Say whether other calls gave the bits of the plain one, and it the same ones everywhere."""
    done = [record for record in records if not record.failure]
    plain = next((record for record in done if record.call.kind == PLAIN), None)
    if plain is None:
        return
    rows = [each for each in outputs if case.operation.is_rows(each)]
    sums = [each for each in outputs if each not in rows]
    if case.family in COPIED:
        yield from _apart_from_copies(case, plain, rows)
    for record in done:
        kind = record.call.kind
        if kind in OTHER_BITS:
            guard, what = OTHER_BITS[kind]
            for output in _different(plain, record, outputs):
                yield Symptom(guard, case, record, output, f"{output} {what}")
        elif kind == AGAIN:
            for output in _different(plain, record, outputs):
                text = f"{output} has other bits when the same call is made again"
                yield Symptom(repeat_guard(case, output), case, record, output, text)
        elif kind in SAME_ROWS:
            guard, what = _of_rows(case, record.call)
            for output in _different(plain, record, rows, matching(case, record.call)):
                yield Symptom(guard, case, record, output, f"{output} of {what}")
        elif kind in IDLE:
            where = "among the others" if IDLE[kind] else "below the others"
            for output in _different(plain, record, sums):
                text = f"{output} changes with rows whose gradients are zero, {where}"
                yield Symptom("idle", case, record, output, text)


def repeat_guard(case: Case, output: str) -> str:
    """Return who looks at results of the same call: sums over rows have a verdict of their own."""
    return "repeat" if case.operation.is_rows(output) else "sums"


def _of_rows(case: Case, call: Call) -> tuple[str, str]:
    """Return who looks at rows that stand elsewhere, or beside others, and what it says."""
    if call.kind == ROWS:
        rows = f"rows {call.start} to {call.stop - 1}"
        return "batch", f"{rows} has other bits than in the batch of {case.shape[0]}"
    if call.kind == REVERSED:
        return "position", "rows has other bits if the last of them is given first"
    return "padding", f"rows has other bits with rows of {BELOW_THEM[call.kind]} below them"


def _apart_from_copies(case: Case, plain: Record, rows: Collection[str]) -> Iterator[Symptom]:
    """Say which row has other bits than another one that is the same."""
    once = case.shape[0] // case.repeats
    for output in rows:
        result = plain.results.get(output)
        if result is None or result.shape != case.shape or result.dtype.name not in FORMATS:
            continue
        copies = np.ascontiguousarray(result).view(np.uint8).reshape(case.repeats, once, -1)
        others = np.argwhere((copies != copies[0]).any(axis=-1))
        if len(others):
            copy, row = map(int, others[0])
            places = (row, copy * once + row)
            text = (
                f"{output} of row {places[1]} has other bits than of row {row}, which is the same"
            )
            yield Symptom("position", case, plain, output, text, places)


def _different(
    first: Record,
    second: Record,
    outputs: Collection[str],
    rows: tuple[slice, slice] | None = None,
) -> Iterator[str]:
    """Yield the outputs whose bits differ, in these rows of the first and of the second record.

    One that is missing, or has another shape, is a finding about that already.
    """
    for output in outputs:
        one, other = first.results.get(output), second.results.get(output)
        if one is None or other is None:
            continue
        if rows is not None:
            if one.ndim == 0 or other.ndim == 0:
                continue
            one, other = one[rows[0]], other[rows[1]]
        if one.shape == other.shape and not _same(one, other):
            yield output


def _same(one: Array, other: Array) -> bool:
    """Compare bits; of a type that is not judged, values, since some bits may mean nothing."""
    if one.dtype.name in FORMATS:
        return one.dtype == other.dtype and same_bits(one, other)
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
