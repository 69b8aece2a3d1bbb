"""What one check has to say of one case."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from truenorm.verify.diagnosis.values import beyond
from truenorm.verify.grading.errors import UNEXPLAINED, Error, measure, misplaced
from truenorm.verify.operation import Case
from truenorm.verify.oracle import Expected, expected
from truenorm.verify.running.records import (
    AGAIN,
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    INTERLEAVED,
    LARGE,
    LATER,
    PADDING_ROWS,
    PLAIN,
    REVERSED,
    ROWS,
    RUNS,
    SAME_ROWS,
    TWICE,
    Call,
    Record,
    Runner,
    case_of_call,
    matching_rows,
)
from truenorm.verify.types import FORMATS, Array, same_bits


@dataclass(frozen=True)
class Symptom:
    """Something that is wrong with one output of one case."""

    guard: str
    case: Case
    record: Record
    output: str
    text: str
    at: tuple[int, ...] = ()
    severity: float = 0.0
    natural: float = 0.0
    right: float | None = None  # where `expected` is not asked: what it should be there,
    allowed: float = 0.0  # and how far off it may be


def of_another_shape(
    output: str, result: Array | None, shape: tuple[int, ...], where: str = ""
) -> str:
    """Say of a result that it is missing, or has another shape than it should."""
    came = "None" if result is None else f"shape {result.shape}"
    return f"{output} is {came}{where}; it should have the shape {shape}"


def same_as(symptom: Symptom) -> tuple[list[str], str]:
    """Return what holds of two calls of a kernel that has the same bits, and what that needs."""
    call = symptom.record.call
    if symptom.guard == "sums":
        return [], f"len({{run(case).tobytes() for _ in range({RUNS})}}) == 1"
    if symptom.guard == "position" and symptom.at:
        places = f"rows = {list(symptom.at)}"
        return [places], "len({row.tobytes() for row in run(case)[rows]}) == 1"
    needed, whole, other = [], "run(case)", "run(case)"
    if symptom.guard == "position":
        other = "run(case.part(slice(None, None, -1)))[::-1]"
    elif symptom.guard == "batch":
        whole = f"run(case)[{call.start}:{call.stop}]"
        other = f"run(case.part(slice({call.start}, {call.stop})))"
    elif symptom.guard == "padding":
        needed = ["from truenorm.verify.operation import padded"]
        numbers = ", ".join(f"float('{each}')" for each in PADDING_ROWS[call.kind])
        other = f"run(padded(case, [{numbers}]))[:{symptom.case.shape[0]}]"
    elif symptom.guard == "idle":
        needed = ["from truenorm.verify.operation import with_idle_rows"]
        other = f"run(with_idle_rows(case, among={IDLE_ROWS[call.kind]}))"
    return needed, f"{other}.tobytes() == {whole}.tobytes()"


OTHER_BITS = {
    LATER: ("overwritten", "is overwritten when more calls follow"),
    INTERLEAVED: ("stale", "changes if another forward pass comes before backward"),
    TWICE: ("spent", "changes if backward is called a second time with what forward saved"),
    **{
        kind: ("layout", f"changes if the gradients that backward is given are {layout}")
        for kind, layout in GRADIENT_LAYOUTS.items()
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
            for output in _different(plain, record, rows, matching_rows(case, record.call)):
                yield Symptom(guard, case, record, output, f"{output} of {what}")
        elif kind in IDLE_ROWS:
            where = "among the others" if IDLE_ROWS[kind] else "below the others"
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
    patience = min(PATIENCE, runner.subject.seconds)
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


GUARDS = {
    "raised": "runs",
    "shape": "runs",
    "type": "runs",
    "ordinary": "accuracy",
    "finite": "accuracy",
    "growth": "accuracy",
    "recipe": "recipe",
    "special": "special values",
    "subnormal": "subnormals kept",
    "repeat": "repeatable",
    "sums": "sums repeatable",
    "position": "batch-invariant",
    "batch": "batch-invariant",
    "padding": "batch-invariant",
    "idle": "idle rows",
    "layout": "layouts of gradients",
    "large": "large calls",
    "inputs": "inputs kept",
    "overwritten": "results kept",
    "stale": "own state",
    "spent": "saved kept",
}
"""Each guard, and the verdict that it decides; the plainest symptoms first."""


@dataclass(frozen=True)
class Judged:
    """A result that could be measured."""

    case: Case
    record: Record
    output: str
    result: Array  # as the case has it, whatever the layout
    error: Error


def judge_case(
    case: Case, records: Collection[Record], outputs: Collection[str], *, finite: bool = True
) -> tuple[list[Symptom], list[Judged]]:
    """Hold all records of a case against its exact answers and against each other.

    Without `finite`, results that are not finite are passed over.
    """
    exact = expected(case)
    symptoms: list[Symptom] = []
    judged: list[Judged] = []
    for record in records:
        symptoms += conduct(case, record)
        kind = record.call.kind
        misshapen = [] if kind == LARGE else list(_misshapen(case, exact, record, outputs))
        symptoms += misshapen
        if kind == PLAIN:
            others = {each.output for each in misshapen}
            fits = [output for output in outputs if output not in others]
            for output, result in _comparable(case, exact, record, fits, symptoms).items():
                error = measure(exact, output, result, finite=finite)
                one = Judged(case, record, output, result, error)
                symptoms += _accuracy(one, exact)
                judged.append(one)
        elif kind == LARGE:
            symptoms += _far_out(case, record, outputs, finite=finite)
    symptoms += comparisons(case, records, outputs)
    return symptoms, judged


def conduct(case: Case, record: Record) -> Iterator[Symptom]:
    """Say whether the call returned, and left its inputs alone."""
    if record.failure:
        yield Symptom("raised", case, record, "", record.failure)
    if record.damaged:
        text = f"{' and '.join(record.damaged)} changed during the call"
        yield Symptom("inputs", case, record, "", text)


def _misshapen(
    case: Case, exact: Expected, record: Record, outputs: Collection[str]
) -> Iterator[Symptom]:
    """Say which results are missing, or have another shape than the rows of the call ask for."""
    asked = case_of_call(case, record.call)
    of_rows = asked.in_layout(asked.x).shape
    where = "" if record.call.kind == PLAIN else f" in the call '{record.call}'"
    for output in outputs:
        value = exact.values[output]
        result = record.results.get(output)
        if value is None or (result is None and (record.failure or record.left_out)):
            continue
        shape = of_rows if case.operation.is_rows(output) else value.shape
        if result is None or result.shape != shape:
            text = of_another_shape(output, result, shape, where)
            yield Symptom("shape", case, record, output, text)


def _comparable(
    case: Case,
    exact: Expected,
    record: Record,
    outputs: Collection[str],
    symptoms: list[Symptom],
) -> dict[str, Array]:
    """Return results of the right shape as rows; note which of them have another type."""
    found: dict[str, Array] = {}
    for output in outputs:
        value = exact.values[output]
        result = record.results.get(output)
        if value is None or result is None:
            continue
        if result.dtype != value.dtype:
            text = f"{output} is {result.dtype.name}; it should be {value.dtype.name}"
            symptoms.append(Symptom("type", case, record, output, text))
        found[output] = result.reshape(value.shape)
    return found


def _accuracy(one: Judged, exact: Expected) -> Iterator[Symptom]:
    """Say whether a result is near enough to the exact answer, and NaN where it must be."""
    output, error, case = one.output, one.error, one.case
    value = exact.values[output]
    if value is None:
        return
    if (spot := misplaced(exact, output, one.result)) is not None:
        text = f"{output}{list(spot)} is {one.result[spot]}; it should be {value[spot]}"
        yield Symptom("special", case, one.record, output, text, spot)
    if not error.needs:
        return
    yield inaccurate(one, one.result[error.at], value[error.at])


def inaccurate(one: Judged, got: float, right: float) -> Symptom:
    """Say by how much a result is off at its worst element, and what kind of failure that is."""
    output, error, case = one.output, one.error, one.case
    where = f"{output}{list(error.at)}"
    if error.not_finite:
        text = f"{where} is {got}, the exact answer {right}"
    elif got == 0:
        text = f"{where} is 0, the exact answer {right}"
    else:
        text = f"{where} is {got}, the exact answer {right}: off by {error.ulp_there:.3g} ulp"
    if case.kind in ("special", "subnormal"):
        guard = case.kind
    elif error.not_finite:
        guard = "finite"
    else:
        # What the condition of a row explains is no mistake, even if the row is an ordinary one.
        wrong = case.kind == "ordinary" and error.needs == UNEXPLAINED
        guard = "ordinary" if wrong else "growth"
    return Symptom(guard, case, one.record, output, text, error.at, error.needs, error.natural)


def _far_out(
    case: Case, record: Record, outputs: Collection[str], *, finite: bool
) -> Iterator[Symptom]:
    """Say whether the worst rows of a large call are what no rounding explains."""
    exact = expected(case)
    for output, result in record.results.items():
        value = exact.values[output]
        if result is None or value is None or output not in outputs:
            continue
        error = measure(exact, output, result, finite=finite)
        if error.needs == UNEXPLAINED:
            spot = (record.call.start + error.at[0], *error.at[1:])
            text = (
                f"{output}{list(spot)} is {result[error.at]}, the exact answer {value[error.at]}, "
                f"in one call with {copies_of(case) * case.shape[0] * case.shape[1]:,} elements"
            )
            yield Symptom("large", case, record, output, text, spot, error.needs, error.natural)
