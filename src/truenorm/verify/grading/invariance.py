"""Invariance checks: calls and rows that must have identical bits."""

from collections.abc import Collection, Iterator

import numpy as np

from truenorm.verify.calls import (
    AFTER_OTHERS,
    AGAIN,
    ALONE,
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    INTERLEAVED,
    LATER,
    MANY,
    PAUSE_SECONDS,
    PAUSED,
    PLAIN,
    REVERSED,
    ROWS,
    SAME_ROWS,
    TILED,
    TWICE,
    Call,
    matching_rows,
)
from truenorm.verify.grading.symptoms import Symptom, first_index, measure
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.running.records import Record
from truenorm.verify.types import JUDGED_TYPES, Array, same_bits

EQUAL_CALLS = {
    LATER: ("overwritten", "is overwritten by later calls"),
    PAUSED: ("overwritten", f"changes within {PAUSE_SECONDS} s after it was returned"),
    INTERLEAVED: ("stale", "changes if another forward pass runs before backward"),
    TWICE: ("spent", "changes if backward is called twice with the same saved state"),
    **{
        kind: ("layout", f"changes if the gradients passed to backward are {layout}")
        for kind, layout in GRADIENT_LAYOUTS.items()
    },
}
"""Calls whose results must have the bits of the plain call: the check, and the symptom."""
PADDING = {"zeros below": "zeros", "not finite below": "NaN and infinity"}
OF_EQUAL_ROWS = ("batch", "batch-sizes")
"""Families whose rows occur several times in one call, at many positions."""
NOT_REPEATABLE = "has different bits when the call is repeated"
DEPENDS_ON_CALLS = "has different bits after calls on other inputs"


def check_invariance(
    case: Case, records: Collection[Record], outputs: Collection[str]
) -> Iterator[Symptom]:
    """Yield the symptoms of calls and rows that should have identical bits."""
    done = [record for record in records if not record.failure]
    plain = next((record for record in done if record.call.kind == PLAIN), None)
    if plain is None:
        return
    rows = [each for each in outputs if case.operation.is_rows(each)]
    sums = [each for each in outputs if each not in rows]
    if case.family in OF_EQUAL_ROWS:
        yield from _check_repeated_rows(case, plain, rows)
    for record in done:
        kind = record.call.kind
        if kind in EQUAL_CALLS:
            guard, change = EQUAL_CALLS[kind]
            for output in _differing(plain, record, outputs):
                yield Symptom(guard, case, record, output, f"{output} {change}")
        elif kind == AGAIN:
            for output in _differing(plain, record, outputs):
                guard, text = repeat_guard(case, output), f"{output} {NOT_REPEATABLE}"
                yield Symptom(guard, case, record, output, text)
        elif kind == MANY:
            for output in record.holds.keys() & set(outputs):
                number = record.holds[output][0]
                guard, text = repeat_guard(case, output), f"{output} {NOT_REPEATABLE}"
                yield Symptom(guard, case, record, output, f"{text}: here, after {number} calls")
        elif kind in (AFTER_OTHERS, ALONE):
            again = [each for each in done if each.call.kind == AGAIN]
            yield from _check_history(case, plain, again, record, outputs)
        elif kind in SAME_ROWS:
            guard, change = row_invariance(case, record.call)
            for output in _differing(plain, record, rows, matching_rows(case, record.call)):
                yield Symptom(guard, case, record, output, f"{output} {change}")
        elif kind == TILED:
            yield from _check_tiled(case, plain, record, rows)
        elif kind in IDLE_ROWS:
            where = "between the others" if IDLE_ROWS[kind] else "below the others"
            for output in _differing(plain, record, sums):
                text = f"{output} changes with rows of zero gradient {where}"
                yield Symptom("idle", case, record, output, text)


def _check_history(
    case: Case,
    plain: Record,
    again: Collection[Record],
    record: Record,
    outputs: Collection[str],
) -> Iterator[Symptom]:
    """Check that a result does not depend on the calls before it.

    Results that also differ when the call is repeated at once are symptoms of another check. A
    call in a new process may choose another algorithm: compared with it, a result must be wrong
    only after other calls.
    """
    varying = {output for each in again for output in _differing(plain, each, outputs)}
    exact = expected(case)
    for output in _differing(plain, record, [each for each in outputs if each not in varying]):
        at: tuple[int, ...] = ()
        value = exact.values[output]
        if record.call.kind == ALONE and value is not None:
            given = [exact.given(each.results) for each in (plain, record)]
            result, alone = (
                right.decoded(output, each.results[output])
                for right, each in zip(given, (plain, record), strict=True)
            )
            if result is None or alone is None:
                continue
            error = measure(given[0], output, result)
            if not error.needs or measure(given[1], output, alone).needs:
                continue
            at = error.at
        yield Symptom("history", case, record, output, f"{output} {DEPENDS_ON_CALLS}", at)


def repeat_guard(case: Case, output: str) -> str:
    """Return the check of repeated calls: sums over rows have a separate verdict."""
    return "repeat" if case.operation.is_rows(output) else "sums"


def row_invariance(case: Case, call: Call) -> tuple[str, str]:
    """Return the check of a call that has the same rows, and the symptom."""
    if call.kind == TILED:
        batch = f"a batch of {call.stop} rows than in one of {case.shape[0]}"
        return "batch", f"has different bits in {batch}"
    if call.kind == ROWS:
        last = call.stop - 1
        rows = f"row {last}" if call.start == last else f"rows {call.start} to {last}"
        return "batch", f"of {rows} has different bits than in the batch of {case.shape[0]}"
    if call.kind == REVERSED:
        return "position", "depends on the order of the rows"
    return "padding", f"changes if rows of {PADDING[call.kind]} are appended"


def _check_repeated_rows(case: Case, plain: Record, rows: Collection[str]) -> Iterator[Symptom]:
    distinct = case.shape[0] // case.repeats
    for output in rows:
        result = plain.results.get(output)
        shapes = case.operation.result_shapes(output, case.given_shape)
        if result is None or result.shape not in shapes or result.dtype.name not in JUDGED_TYPES:
            continue
        copies = np.ascontiguousarray(result).view(np.uint8).reshape(case.repeats, distinct, -1)
        differs = (copies != copies[0]).any(axis=-1)
        if differs.any():
            copy, row = first_index(differs)
            at = (row, copy * distinct + row)
            text = (
                f"{output} of row {at[1]} has different bits than {output} of the equal row {row}"
            )
            yield Symptom("position", case, plain, output, text, at)


def _check_tiled(
    case: Case, plain: Record, record: Record, rows: Collection[str]
) -> Iterator[Symptom]:
    """Check that copies of a row have the same bits, and the bits of the plain call."""
    stop = record.call.stop
    for output in rows:
        if output in record.holds:
            start = int(record.holds[output][0])
            text = f"{output} of equal rows has different bits in a batch of {stop} rows"
            at = (start % case.shape[0], start)
            yield Symptom("position", case, record, output, text, at)
        elif any(_differing(plain, record, [output], (slice(stop), slice(None)))):
            guard, change = row_invariance(case, record.call)
            yield Symptom(guard, case, record, output, f"{output} {change}")


def _differing(
    first: Record,
    second: Record,
    outputs: Collection[str],
    rows: tuple[slice, slice] | None = None,
) -> Iterator[str]:
    """Yield the outputs whose bits differ, in `rows` of the first and of the second record.

    Missing results and results of another shape are symptoms of other checks.
    """
    for output in outputs:
        one, other = first.results.get(output), second.results.get(output)
        if one is None or other is None:
            continue
        if rows is not None:
            if one.ndim == 0 or other.ndim == 0:
                continue
            one, other = one[rows[0]], other[rows[1]]
        if one.shape == other.shape and not _equal(one, other):
            yield output


def _equal(one: Array, other: Array) -> bool:
    """Compare bits; in types that are not judged, compare values, as some bits may be unused."""
    if one.dtype.name in JUDGED_TYPES:
        return one.dtype == other.dtype and same_bits(one, other)
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
