"""Calls that repeat the rows of a case: equal rows are compared where the subject runs.

Such a call may have more than 2^25 elements. Of each result that consists of rows, the record has
one copy of the rows of the case only: that which differs most from the first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.operation import Case
from truenorm.verify.running.records import Record
from truenorm.verify.types import JUDGED_TYPES, Array, same_bits

BLOCK_ELEMENTS = 2**18
FLOAT32_INTEGERS = 24
"""float32 represents all integers up to this power of two."""


def repeated(rows: Array, count: int) -> Array:
    """Return a new array of so many rows, in which these are repeated.

    Examples
    --------
    >>> import numpy as np
    >>> repeated(np.array([[1], [2]]), 3).tolist()
    [[1], [2], [1]]
    """
    times = -(-count // len(rows))
    return np.tile(rows, (times, 1))[:count]


def first_change(rows: Array, array: Array) -> int:
    """Return the first row of an array that is not a copy of the one in `rows`, or -1."""
    for start, differs in _differing(rows, array):
        if differs.any():
            return start + int(np.argmax(differs))
    return -1


def _differing(rows: Array, array: Array) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Yield blocks of an array: the first row, and a mask of the rows with other bits."""
    count, size = rows.shape
    step = count * max(1, BLOCK_ELEMENTS // max(1, count * size))
    block = _bits(repeated(rows, min(step, max(1, len(array)))))
    for start in range(0, len(array), step):
        part = _bits(np.ascontiguousarray(array[start : start + step]))
        yield start, (part != block[: len(part)]).any(axis=1)


def _bits(array: Array) -> NDArray[np.unsignedinteger[Any]]:
    """Return rows of bits, as wide integers where possible: these are compared faster."""
    width = array.shape[1] * array.itemsize
    kind = np.uint64 if width % 8 == 0 else np.dtype(f"u{array.itemsize}")
    return array.view(kind)


def equal_results(
    arrays: Mapping[str, Array | None], results: Mapping[str, Array | None]
) -> dict[str, tuple[str, ...]]:
    """Return, by array, the results that have the same bits, where there are any."""
    equal = {
        name: tuple(output for output, result in results.items() if _equal(array, result))
        for name, array in arrays.items()
    }
    return {name: outputs for name, outputs in equal.items() if outputs}


def _equal(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None or one.dtype.name not in JUDGED_TYPES:
        return False
    return one.shape == other.shape and one.dtype == other.dtype and same_bits(one, other)


def finished_record(
    case: Case,
    record: Record,
    later: Mapping[str, Array | None],
    damaged: Mapping[str, Array | None],
) -> Record:
    """Return a record with what results of later passes and damaged inputs hold.

    Of repeated rows, it has one copy.
    """
    holds = {
        **record.holds,
        **equal_results(record.results, later),
        **equal_results(damaged, record.results),
    }
    record = replace(record, damaged=tuple(damaged), holds=holds)
    return reduced_record(case, record) if record.call.how.repeats_rows else record


def reduced_record(case: Case, record: Record) -> Record:
    """Return the record of a tiled call of a case, with one copy of the rows of each result.

    It is the copy with the largest difference from the first; in `holds` is its first row, as
    text, and a description of the wrong elements where they are recognized.
    """
    if record.failure:
        return record
    results: dict[str, Array | None] = {}
    holds = dict(record.holds)
    for output, result in record.results.items():
        if result is None or not case.operation.is_rows(output):
            results[output] = result
            continue
        shape = record.call.stop, *case.given_shape[1:]
        shapes = case.operation.result_shapes(output, shape)
        if result.shape not in shapes:
            failure = f"{output} is shape {result.shape}; it should have the shape {shapes[0]}"
            return replace(record, results={}, failure=failure)
        known = result.dtype.name in JUDGED_TYPES
        whole = result if known else np.real(result).astype(np.float64)
        whole = whole.reshape(len(whole), -1)
        first = whole[: case.shape[0]].copy()
        worst = _worst_row(first, whole)
        results[output] = first
        if worst >= 0:
            start = worst - worst % len(first)
            copy = whole[start : start + len(first)]  # the last one may be cut off
            results[output] = np.concatenate([copy, first[len(copy) :]])
            description = describe_wrong_elements(first, whole)
            holds[output] = (str(start), *([description] if description else []))
    return replace(record, results=results, holds=holds)


def _worst_row(rows: Array, array: Array) -> int:
    """Return the row with the largest difference from its copy in `rows`, or -1 without any."""
    worst, largest = -1, -1.0
    for start, differs in _differing(rows, array):
        if differs.any():
            places = start + np.flatnonzero(differs)
            with np.errstate(all="ignore"):
                wide = array[places].astype(np.float64)
                changes = np.abs(wide - rows[places % len(rows)].astype(np.float64)).max(axis=1)
            changes = np.where(np.isnan(changes), np.inf, changes)
            if changes.max() > largest:
                worst, largest = int(places[np.argmax(changes)]), float(changes.max())
    return worst


def describe_wrong_elements(rows: Array, result: Array) -> str:
    """Describe the elements of a large call from the power of two below the first wrong one.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.arange(1.0, 4.0)[np.newaxis]
    >>> result = repeated(rows, 6)
    >>> result.reshape(-1)[16:] = 0
    >>> describe_wrong_elements(rows, result)
    '0 from element 2^4 on: these are not written'
    """
    flat, right = result.reshape(-1), rows.reshape(-1)
    row = first_change(rows, result)
    if row < 0 or not np.isfinite(right).all():
        return ""
    columns = result[row] != rows[row % len(rows)]
    first = row * rows.shape[1] + int(np.argmax(columns))
    power = first.bit_length() - 1
    indices = np.arange(1 << power, flat.size)
    tail = flat[indices[0] :]

    def has_values_of(others: NDArray[np.int64]) -> bool:
        return np.array_equal(tail, right[np.minimum(others, flat.size - 1) % right.size])

    if not tail.any():
        return f"0 from element 2^{power} on: these are not written"
    if power == FLOAT32_INTEGERS and has_values_of(indices.astype(np.float32).astype(np.int64)):
        return f"wrong from element 2^{power} on: indices are computed in float32"
    if has_values_of(indices - (1 << power)):
        return f"wrong from element 2^{power} on: indices start again at 0"
    return ""


def tiled_damage(case: Case, arrays: Mapping[str, Array | None]) -> list[str]:
    """Return the names of the inputs of a tiled call whose bits have changed."""
    damaged = []
    for name, before in case.inputs.items():
        now = arrays.get(name)
        if before is not None and now is not None:
            is_row = name in case.rows
            now = now.reshape(len(now), -1) if is_row else now[np.newaxis]
            rows, result = (before, now) if is_row else (before[np.newaxis], now)
            if first_change(rows, result) >= 0:
                damaged.append(name)
    return damaged
