"""Make and check calls of more than 2^24 elements, whose results are too large to keep."""

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from truenorm.verify.calls import LARGE, LARGE_FORWARD, Call, calls_of
from truenorm.verify.grading.symptoms import UNEXPLAINED, Symptom, measure
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.running.recording import PlannedCall
from truenorm.verify.running.records import Record, Runner

LARGE_ELEMENTS = 2**24 + 2**18
"""Elements of the large call: more than float32 can count, and a few hundred rows beyond."""
LARGE_FORWARD_ELEMENTS = 2**25 + 2**18
"""Elements of a large call without a backward pass, which would take another gigabyte."""
SAMPLE_RATIO = 64  # the time is estimated by a call this many times smaller
SAMPLES = 2  # the machine may be busy during the first
PATIENCE = 20.0  # seconds
LARGEST_BYTES = 2**28
"""Largest size of x in a large call without a backward pass."""


def large_call_rows(case: Case, kind: str = LARGE) -> int:
    """Return the number of rows of a large call of a case."""
    elements = LARGE_ELEMENTS if kind == LARGE else LARGE_FORWARD_ELEMENTS
    return int(elements // np.prod(case.shape)) * case.shape[0]


def planned_calls(case: Case) -> list[PlannedCall]:
    """Return all calls of a case for a recording, with the calls that `large_call` makes."""
    planned = [PlannedCall(call) for call in calls_of(case)]
    if case.family == "large":
        rows, forward_rows = large_call_rows(case), large_call_rows(case, LARGE_FORWARD)
        sample = Call(LARGE, 0, rows // SAMPLE_RATIO)
        planned += [PlannedCall(sample, ratio=SAMPLE_RATIO)] * SAMPLES
        planned.append(PlannedCall(Call(LARGE, 0, rows), when="fast"))
        if forward_rows * case.first[0].nbytes <= LARGEST_BYTES:
            planned.append(PlannedCall(Call(LARGE_FORWARD, 0, forward_rows), when="fast"))
    return planned


def large_call(runner: Runner, case: Case, plain: Record) -> Iterator[Record]:
    """Make the large calls unless they would take too long; yield the worst rows of each output.

    `plain` is the record of the rows alone: the time of that call does not scale with the number
    of rows.
    """
    rows = large_call_rows(case)
    patience = min(PATIENCE, runner.subject.seconds)
    for _ in range(SAMPLES):
        sample = runner.run(case, Call(LARGE, 0, rows // SAMPLE_RATIO))
        if sample.failure or sample.left_out:
            yield replace(sample, results={})
            return
        seconds = plain.seconds + SAMPLE_RATIO * max(sample.seconds - plain.seconds, 0.0)
        if seconds <= patience:
            yield from _worst_rows(case, runner.run(case, Call(LARGE, 0, rows)))
            rows = large_call_rows(case, LARGE_FORWARD)
            small = rows * case.first[0].nbytes <= LARGEST_BYTES
            if runner.subject.command is None and small:
                yield from _worst_rows(case, runner.run(case, Call(LARGE_FORWARD, 0, rows)))
            return
    reason = (
        f"a call with {LARGE_ELEMENTS:,} elements would take about {seconds:.0f} s; "
        f"the limit is {patience:g} s"
    )
    yield Record(case.name, Call(LARGE, 0, rows), left_out=reason)


def _worst_rows(case: Case, record: Record) -> Iterator[Record]:
    """Yield a record for each copy of the rows that has the largest error of an output.

    The record also has the outputs of which all copies are equal.
    """
    kind, rows, size = record.call.kind, record.call.stop, case.shape[1]
    if record.failure:
        where = f"in one call with {rows * size:,} elements"
        yield replace(record, failure=f"{record.failure}, {where}", results={})
        return
    yield replace(record, results={}, holds={})
    results = {name: each for name, each in record.results.items() if case.operation.is_rows(name)}
    worst = {name: record.holds[name] for name in results if name in record.holds}
    for start in dict.fromkeys(first for first, *_ in worst.values()) or ["0"]:
        here = {
            name: each for name, each in results.items() if worst.get(name, [start])[0] == start
        }
        holds = {
            name: tuple(description)
            for name, (first, *description) in worst.items()
            if first == start and description
        }
        call = Call(kind, int(start), int(start) + case.shape[0])
        yield Record(case.name, call, here, holds=holds)


def check_large(case: Case, record: Record, outputs: Collection[str]) -> Iterator[Symptom]:
    """Check that the worst rows of a large call have no error beyond rounding."""
    exact = expected(case).given(record.results)
    for output, returned in record.results.items():
        value, result = exact.values[output], exact.decoded(output, returned)
        if result is None or value is None or output not in outputs:
            continue
        error = measure(exact, output, result)
        if error.needs == UNEXPLAINED:
            at = (record.call.start + error.at[0], *error.at[1:])
            elements = large_call_rows(case, record.call.kind) * case.shape[1]
            text = (
                f"{output}{list(at)} is {result[error.at]}, the exact answer {value[error.at]}, "
                f"in one call with {elements:,} elements"
            )
            yield Symptom("large", case, record, output, text, at, error.needs, error.natural)
