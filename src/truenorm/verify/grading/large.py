"""One call with more than 2^24 elements: a few rows with known answers, many times over.

From there on float32 does not count, and some kernels keep a place in fewer bits than it has.
Exact answers to so many elements would take minutes; the rows that are repeated have theirs.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from truenorm.verify.answers.expected import expected
from truenorm.verify.causes.places import beyond
from truenorm.verify.grading.measuring import measure
from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import LARGE, Call, Record, Runner
from truenorm.verify.types import Array

__all__ = ["copies_of", "large_call"]

ELEMENTS = 2**24 + 2**18  # some hundred rows beyond
SAMPLE = 64  # a call that is so many times smaller tells the pace
SAMPLES = 2  # a machine that was busy the first time may have time the second
PATIENCE = 20.0  # seconds, where all the other cases take some


def copies_of(case: Case) -> int:
    """Return how many times the rows of a case are given in one call."""
    return int(ELEMENTS // np.prod(case.shape))


def large_call(runner: Runner, case: Case, plain: Record) -> Iterator[Record]:
    """Make the call, unless it would take too long; yield the rows that are furthest off.

    `plain` is what the rows gave alone: what is not longer for more rows is no matter of pace.
    """
    rows = case.shape[0] * copies_of(case)
    patience = min(PATIENCE, runner.seconds)
    for _ in range(SAMPLES):
        sample = runner.run(case, Call(LARGE, 0, rows // SAMPLE))
        if sample.failure or sample.left_out:
            yield replace(sample, results={})
            return
        seconds = plain.seconds + SAMPLE * max(sample.seconds - plain.seconds, 0.0)
        if seconds <= patience:
            yield from _worst_rows(case, runner.run(case, Call(LARGE, 0, rows)))
            return
    reason = (
        f"at its pace a call with {ELEMENTS:,} elements would take {seconds:.0f} s, "
        f"and {patience:g} s is the most that is waited for"
    )
    yield Record(case.name, Call(LARGE, 0, rows), left_out=reason)


def _worst_rows(case: Case, record: Record) -> Iterator[Record]:
    """Yield a record for each result of rows, with one copy of the rows, the worst."""
    rows, size = record.call.stop, case.shape[1]
    if record.failure:
        where = f"in one call with {rows * size:,} elements"
        yield replace(record, failure=f"{record.failure}, {where}", results={})
        return
    yield replace(record, results={})
    for output, result in record.results.items():
        if result is None or not case.operation.is_rows(output):
            continue
        if result.shape != (rows, size):
            failure = f"{output} of {rows} rows of {size} has the shape {result.shape}"
            yield Record(case.name, record.call, failure=failure)
            continue
        copies = result.reshape(-1, *case.shape)
        start = case.shape[0] * _worst_copy(case, output, copies)
        kept = slice(start, start + case.shape[0])
        call = Call(LARGE, kept.start, kept.stop)
        held = beyond(copies)
        holds = {output: (held,)} if held else {}
        yield Record(case.name, call, {output: result[kept].copy()}, holds=holds)


def _worst_copy(case: Case, output: str, copies: Array) -> int:
    """Return which copy is furthest off; as a rule all have the same bits, and one is measured."""
    numbers = np.uint64 if copies[0].nbytes % 8 == 0 else np.uint8  # the more bits, the sooner
    bits = copies.reshape(len(copies), -1).view(numbers)
    others = np.flatnonzero((bits != bits[0]).any(axis=1)).tolist()
    first_of: dict[bytes, int] = {}
    for place in [0, *others]:
        first_of.setdefault(copies[place].tobytes(), place)

    def badness(place: int) -> tuple[int, float, float]:
        error = measure(expected(case), output, copies[place])
        return error.needs, error.natural, error.ulp

    return max(first_of.values(), key=badness)
