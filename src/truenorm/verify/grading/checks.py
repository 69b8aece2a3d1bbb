"""The checks of the judge: compare the records of a case with its answers and with each other.

`measure` compares a result with the exact answer, in ulp and in natural units.
`check_case` runs all checks on a case and returns a `Symptom` for each one that fails.
`large_call` makes the calls of more than 2^24 elements, whose results are too large to keep.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.operation import Case
from truenorm.verify.oracle import AnswerBounds, Expected, expected
from truenorm.verify.running.recording import PlannedCall
from truenorm.verify.running.records import (
    AFTER_OTHERS,
    AGAIN,
    ALONE,
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    INTERLEAVED,
    LARGE,
    LARGE_FORWARD,
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
    Record,
    Runner,
    calls_of,
    case_of_call,
    matching_rows,
)
from truenorm.verify.types import JUDGED_TYPES, Array, same_bits

GUARDS = {
    "raised": "runs",
    "result": "runs",
    "shape": "runs",
    "type": "runs",
    "ordinary": "accuracy",
    "finite": "accuracy",
    "growth": "accuracy",
    "recipe": "recipe",
    "floor": "least scale",
    "biased": "rounding",
    "special": "special values",
    "subnormal": "subnormals kept",
    "repeat": "repeatable",
    "sums": "sums repeatable",
    "history": "repeatable",
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
"""The checks by name, each with the verdict it decides; the simplest symptoms come first."""
UNEXPLAINED = 3
"""The power of kappa of an error that no power up to 2 explains."""


@dataclass(frozen=True)
class Error:
    """The error of one output of one case; `at` is the element with the largest excess."""

    ulp: float  # largest error
    natural: float  # largest error beyond one ulp, in natural units
    needs: int  # smallest power of kappa that explains every element, or UNEXPLAINED
    correct: bool  # each element is the exact answer rounded once, ties to even
    at: tuple[int, ...]
    ulp_at: float  # error of that element
    not_finite: bool  # that element is not finite and should be
    excess: float = 0.0  # its error divided by its tolerance


def measure(
    expected: Expected,
    output: str,
    result: Array,
    *,
    finite: bool = True,
    bounds: AnswerBounds | None = None,
) -> Error:
    """Measure the error of a result, over the elements whose exact answer is finite.

    The result must have the shape of the answer. If `finite` is False, ignore non-finite elements,
    as a check ``abs(error) > tolerance`` would. `bounds` encloses answers that are not exact.
    """
    error, in_ulp, correct = expected.element_errors(output, result, finite=finite, bounds=bounds)
    if error.size == 0:
        return Error(0.0, 0.0, 0, True, (), 0.0, False)
    with np.errstate(all="ignore"):
        ulps = expected.ulps[output]
        natural = (error - ulps).clip(0) / (expected.unit(output) * expected.scale(output))
        excess = error / expected.allowed(output).clip(ulps)
    at = tuple(map(int, np.unravel_index(int(np.argmax(excess)), excess.shape)))
    powers = (
        power for power in range(UNEXPLAINED) if (error <= expected.allowed(output, power)).all()
    )
    return Error(
        ulp=float(in_ulp.max()),
        natural=float(np.nan_to_num(natural, nan=0.0, posinf=np.inf).max()),
        needs=next(powers, UNEXPLAINED),
        correct=bool(correct.all()),
        at=at,
        ulp_at=float(in_ulp[at]),
        not_finite=not np.isfinite(float(np.real(result[at]))),
        excess=float(excess[at]),
    )


def first_index(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the index of the first True element."""
    return tuple(map(int, np.argwhere(mask)[0]))


@dataclass(frozen=True)
class Symptom:
    """A check that failed for one output of one case.

    `right` and `allowed` are the answer and the tolerance at `at`, for a case whose answers
    cannot be recomputed by `expected`.
    """

    guard: str
    case: Case
    record: Record
    output: str
    text: str
    at: tuple[int, ...] = ()
    severity: float = 0.0
    natural: float = 0.0
    right: float | None = None
    allowed: float = 0.0

    @property
    def type_and_output(self) -> tuple[str, str]:
        """The type of the case, and the output."""
        return self.case.dtype, self.output


@dataclass(frozen=True)
class MeasuredResult:
    """A result and its error; `result` has the shape of the answer, and codes are decoded.

    `allowed` is the largest error of a stable result, in natural units.
    """

    case: Case
    record: Record
    output: str
    result: Array
    error: Error
    allowed: float

    @property
    def type_and_output(self) -> tuple[str, str]:
        """The type of the case, and the output."""
        return self.case.dtype, self.output


def check_case(
    case: Case, records: Collection[Record], outputs: Collection[str], *, finite: bool = True
) -> tuple[list[Symptom], list[MeasuredResult]]:
    """Compare the records of a case with its exact answers and with each other.

    Return the symptoms and the results that were measured. If `finite` is False, ignore
    non-finite elements.
    """
    if case.compared:
        of_calls = (symptom for record in records for symptom in check_call(case, record))
        return [*of_calls, *_check_invariance(case, records, outputs)], []
    exact = expected(case)
    symptoms: list[Symptom] = []
    measured: list[MeasuredResult] = []
    for record in records:
        symptoms += check_call(case, record)
        if record.call.kind in (LARGE, LARGE_FORWARD):
            symptoms += _check_large(case, record, outputs, finite=finite)
            continue
        if record.call.kind == TILED:  # shapes were checked when copies were compared
            continue
        wrong_shape = list(_check_shapes(case, exact, record, outputs))
        symptoms += wrong_shape
        if record.call.kind != PLAIN:
            continue
        right_shape = {
            name: each
            for name, each in record.results.items()
            if name not in {symptom.output for symptom in wrong_shape}
        }
        given = exact.given(right_shape)
        for output in outputs:
            value, result = given.values[output], record.results.get(output)
            if value is None or result is None or output not in right_shape:
                continue
            if text := given.type_error(output, result):
                symptoms.append(Symptom("type", case, record, output, text))
            result = given.decoded(output, result)
            if result is None:
                continue
            error = measure(given, output, result, finite=finite)
            allowed = given.factor(output)
            measured.append(MeasuredResult(case, record, output, result, error, allowed))
            symptoms += _check_accuracy(measured[-1], given, value)
    symptoms += _check_invariance(case, records, outputs)
    return symptoms, measured


def check_call(case: Case, record: Record) -> Iterator[Symptom]:
    """Check that a call returned and left its inputs unchanged."""
    if record.failure:
        guard = "result" if record.failure.startswith("returned ") else "raised"
        yield Symptom(guard, case, record, "", record.failure)
    if record.damaged:
        text = f"{' and '.join(record.damaged)} changed during the call"
        yield Symptom("inputs", case, record, "", text)


def _check_shapes(
    case: Case, exact: Expected, record: Record, outputs: Collection[str]
) -> Iterator[Symptom]:
    """Check that each result exists and has the shape that the rows of the call require."""
    called = case_of_call(case, record.call)
    shape_of_rows = called.given_shape
    where = "" if record.call.kind == PLAIN else f" in the call '{record.call}'"
    for output in outputs:
        value, result = exact.values[output], record.results.get(output)
        if value is None or (result is None and (record.failure or record.left_out)):
            continue
        shapes = case.operation.result_shapes(output, shape_of_rows)
        if result is None or result.shape not in shapes:
            text = wrong_shape_text(output, result, shapes[0], where)
            yield Symptom("shape", case, record, output, text)


def wrong_shape_text(
    output: str, result: Array | None, shape: tuple[int, ...], where: str = ""
) -> str:
    """Describe a result that is missing or has a wrong shape."""
    returned = "None" if result is None else f"shape {result.shape}"
    return f"{output} is {returned}{where}; it should have the shape {shape}"


def _check_accuracy(one: MeasuredResult, exact: Expected, value: Array) -> Iterator[Symptom]:
    """Check that a result is within its tolerance, and NaN or infinite where it must be."""
    wrong = exact.misplaced(one.output, one.result)
    if wrong.any():
        at = first_index(wrong)
        text = f"{one.output}{list(at)} is {one.result[at]}; it should be {value[at]}"
        yield Symptom("special", one.case, one.record, one.output, text, at)
    if one.error.needs:
        yield accuracy_symptom(one, one.result[one.error.at], value[one.error.at])


def accuracy_symptom(one: MeasuredResult, got: float, right: float) -> Symptom:
    """Describe the worst element of an inaccurate result, and choose the check it fails."""
    output, error, case = one.output, one.error, one.case
    got, right = (0 if each == 0 else each for each in (got, right))  # no -0
    text = f"{output}{list(error.at)} is {got}, the exact answer {right}"
    if got != 0 and right != 0 and not error.not_finite:
        text += f": off by {error.ulp_at:.3g} ulp"
    if case.kind in ("special", "subnormal"):
        guard = case.kind
    else:
        # An error that the condition number explains is no bug, even on ordinary input.
        unexplained = error.needs == UNEXPLAINED
        guard = "ordinary" if unexplained and case.kind == "ordinary" else "growth"
        if error.not_finite or (got == 0 and unexplained and guard == "growth"):
            guard = "finite"
    return Symptom(guard, case, one.record, output, text, error.at, error.needs, error.natural)


MOST_NOT_NEAREST = 1e-3
"""The share of elements of an output that is rounded once which may not be the nearest number.
Half an ulp of bias in a sum that is used again shrinks it with every layer (aiter#5151)."""


def biased_symptoms(measured: Iterable[MeasuredResult]) -> list[Symptom]:
    """Return a symptom for each output that is rounded once, but often not to nearest."""
    groups: dict[tuple[str, str], list[MeasuredResult]] = {}
    for one in measured:
        once = one.output in one.case.operation.rounded_once and one.case.kind == "ordinary"
        if once and one.result.size:  # results of user cases are not kept
            groups.setdefault(one.type_and_output, []).append(one)
    symptoms = []
    for group in groups.values():
        wrong = sum(int((~_nearest(one)).sum()) for one in group)
        share = wrong / max(sum(one.result.size for one in group), 1)
        if share > MOST_NOT_NEAREST:
            one = max(group, key=lambda one: int((~_nearest(one)).sum()))
            text = f"{one.output} is not rounded to nearest in {100 * share:.2g} % of its elements"
            at = first_index(~_nearest(one))
            symptoms.append(Symptom("biased", one.case, one.record, one.output, text, at))
    return symptoms


def _nearest(one: MeasuredResult) -> NDArray[np.bool_]:
    return expected(one.case).element_errors(one.output, one.result).correct


def explain_bias(output: str, measured: Iterable[MeasuredResult]) -> str:
    """Return in which direction an output is rounded, if that is the same everywhere."""
    towards_zero = down = True
    for one in measured:
        if one.output == output and one.case.kind == "ordinary" and one.result.size:
            answers, result = expected(one.case), one.result.astype(np.float64)
            exact = answers.wide[output] + answers.remainders[output] * answers.ulps[output]
            towards_zero &= bool((np.abs(result) <= np.abs(exact)).all())
            down &= bool((result <= exact).all())
    if towards_zero:
        return f"{output} is truncated, not rounded to nearest"
    return f"{output} is rounded down" if down else ""


def relax_sums(
    symptoms: Iterable[Symptom], measured: Iterable[MeasuredResult]
) -> tuple[list[Symptom], list[MeasuredResult]]:
    """Allow a sum over n rows log2(n) times the error of a stable result.

    So a sum in blocks whose number grows with n passes, and one row by row does not.
    """
    relaxed, stable = [], set()
    for one in measured:
        relaxed.append(one if one.case.operation.is_rows(one.output) else _relaxed(one))
        if one.error.needs and not relaxed[-1].error.needs:
            stable.add((one.case.name, one.output))
    kept = [
        each
        for each in symptoms
        if not each.natural or (each.case.name, each.output) not in stable
    ]
    return kept, relaxed


def _relaxed(one: MeasuredResult) -> MeasuredResult:
    allowed = one.allowed * max(1.0, float(np.log2(max(one.case.shape[0], 1))))
    needs = 0 if one.error.natural <= allowed else one.error.needs
    return replace(one, allowed=allowed, error=replace(one.error, needs=needs))


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
"""Calls whose results must have the bits of the plain call: the check, and its symptom."""
PADDING = {"zeros below": "zeros", "not finite below": "NaN and infinity"}
OF_EQUAL_ROWS = ("batch", "batch-sizes")
"""Families whose rows occur several times in one call, at many positions."""


def _check_invariance(
    case: Case, records: Collection[Record], outputs: Collection[str]
) -> Iterator[Symptom]:
    """Invariance checks: calls and rows that must have identical bits."""
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


NOT_REPEATABLE = "has different bits when the call is repeated"
DEPENDS_ON_CALLS = "has different bits after calls on other inputs"


def _check_history(
    case: Case,
    plain: Record,
    again: Collection[Record],
    record: Record,
    outputs: Collection[str],
) -> Iterator[Symptom]:
    """Check that a result does not depend on the calls before it.

    Results that also differ when the call is repeated at once are symptoms of another check. A
    call in a new process may choose another algorithm: there, a result must be wrong only after
    other calls.
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
    """Return the check of a call that has the same rows, and its symptom."""
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
    """Check that copies of a row have the same bits, also as in the plain call."""
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


LARGE_ELEMENTS = 2**24 + 2**18
"""Elements of the large call: more than float32 can count, and a few hundred rows beyond."""
LARGE_FORWARD_ELEMENTS = 2**25 + 2**18
"""Elements of a large call without a backward pass, which would take another gigabyte."""
SAMPLE_RATIO = 64  # the time is estimated by a call this many times smaller
SAMPLES = 2  # the machine may be busy during the first
PATIENCE = 20.0  # seconds
LARGEST_BYTES = 2**28
"""Of x in a large call."""


def large_call_rows(case: Case, kind: str = LARGE) -> int:
    """Return the number of rows of a large call of a case."""
    elements = LARGE_ELEMENTS if kind == LARGE else LARGE_FORWARD_ELEMENTS
    return int(elements // np.prod(case.shape)) * case.shape[0]


def planned_calls(case: Case) -> list[PlannedCall]:
    """Return all calls of a case for a recording: also those that `large_call` makes."""
    planned = [PlannedCall(call) for call in calls_of(case)]
    if case.family == "large":
        rows, forward_rows = large_call_rows(case), large_call_rows(case, LARGE_FORWARD)
        sample = Call(LARGE, 0, rows // SAMPLE_RATIO)
        planned += [PlannedCall(sample, ratio=SAMPLE_RATIO)] * SAMPLES
        planned.append(PlannedCall(Call(LARGE, 0, rows), when="fast"))
        if forward_rows * case.x[0].nbytes <= LARGEST_BYTES:
            planned.append(PlannedCall(Call(LARGE_FORWARD, 0, forward_rows), when="fast"))
    return planned


def large_call(runner: Runner, case: Case, plain: Record) -> Iterator[Record]:
    """Make the large calls unless they would take too long; yield the worst rows of each output.

    `plain` is the record of the rows alone: its time does not scale with the number of rows.
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
            small = rows * case.x[0].nbytes <= LARGEST_BYTES
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

    It has also the outputs of which all copies are equal.
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


def _check_large(
    case: Case, record: Record, outputs: Collection[str], *, finite: bool
) -> Iterator[Symptom]:
    """Check that the worst rows of a large call have no error beyond rounding."""
    exact = expected(case).given(record.results)
    for output, returned in record.results.items():
        value, result = exact.values[output], exact.decoded(output, returned)
        if result is None or value is None or output not in outputs:
            continue
        error = measure(exact, output, result, finite=finite)
        if error.needs == UNEXPLAINED:
            at = (record.call.start + error.at[0], *error.at[1:])
            elements = large_call_rows(case, record.call.kind) * case.shape[1]
            text = (
                f"{output}{list(at)} is {result[error.at]}, the exact answer {value[error.at]}, "
                f"in one call with {elements:,} elements"
            )
            yield Symptom("large", case, record, output, text, at, error.needs, error.natural)
