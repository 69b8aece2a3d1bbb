"""Judge user cases, which may be too large for exact answers, by proven enclosures.

The answers are enclosed some rows at a time (`enclosed_answers`). Each result is measured while
its case runs (`run_user_case`), so that no more than one result is in memory. A sample of rows is
compared with exact answers as well.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from truenorm.verify.calls import AGAIN, ROWS, TILED, TILED_SIZES, Call
from truenorm.verify.formulas.balls import Ball, round_ball
from truenorm.verify.grading.checks import accuracy_symptom, check_call, wrong_shape_text
from truenorm.verify.grading.invariance import NOT_REPEATABLE, repeat_guard, row_invariance
from truenorm.verify.grading.symptoms import (
    UNEXPLAINED,
    Error,
    MeasuredResult,
    Symptom,
    first_index,
    measure,
)
from truenorm.verify.norms.enclosures import enclose, largest_kappa, row_blocks
from truenorm.verify.operation import Case, Scales
from truenorm.verify.oracle import (
    AnswerBounds,
    Expected,
    compute_exact,
    load_or_compute,
    output_types,
)
from truenorm.verify.running.records import Record, Runner
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, same_bits


@dataclass(frozen=True)
class ColumnScales:
    """Scales of sums over rows, by output and power of kappa: see `Scales`."""

    sums: Mapping[tuple[str, int], Float64s]
    counts: Mapping[str, int]
    kappa: Float64s

    def of(self, output: str, power: int) -> Float64s:
        """Return the scale of each column."""
        return self.sums[output, power]

    def terms(self, output: str) -> int:
        """Return the number of terms of each sum."""
        return self.counts[output]


class EnclosedAnswers(Expected):
    """Answers that are known by enclosures, `bounds`, for the outputs of `balls`."""

    def __init__(self, case: Case, balls: Mapping[str, Ball], scales: Scales) -> None:
        self._case = case
        self.types = {name: kind for name, kind in output_types(case).items() if name in balls}
        self.values, self.wide, self.remainders, self.ulps = {}, {}, {}, {}
        self.bounds: dict[str, AnswerBounds] = {}
        with np.errstate(all="ignore"):
            for output, kind in self.types.items():
                self._enclose(output, kind, balls[output])
        self.scales = scales
        self._allowed: dict[tuple[str, int], Float64s] = {}

    def _enclose(self, output: str, kind: str, ball: Ball) -> None:
        if not np.isfinite(ball.radius).all():
            raise ValueError(
                f"there is no bound for {output} of {self._case.name}: its numbers are too large, "
                "or too small for its eps"
            )
        rounded = round_ball(ball, kind)
        self.values[output] = rounded.value.astype(dtype_of(kind))
        self.wide[output], self.ulps[output] = rounded.value, rounded.ulps
        self.remainders[output] = rounded.remainder
        self.bounds[output] = AnswerBounds(rounded.radius, rounded.low, rounded.high)


def enclosed_answers(
    case: Case, outputs: Sequence[str]
) -> Iterator[tuple[slice | None, EnclosedAnswers]]:
    """Yield blocks of rows with their answers, then None with the sums over all rows.

    Each item has its part of the `outputs`, and only one item is in memory.
    """
    rows = [output for output in outputs if case.operation.is_rows(output)]
    sums = _ColumnSums(case, [output for output in outputs if output not in rows])
    for block in row_blocks(case):
        part = case.part(block)
        balls = enclose(part)
        exact = {"xhat": balls["xhat"].high, "r": balls["r"].high}
        scales = case.operation.scales(part, exact)
        sums.add(balls, scales)
        yield block, EnclosedAnswers(part, {output: balls[output] for output in rows}, scales)
    if case.shape[0] and sums.outputs:
        yield None, sums.answers()


class _ColumnSums:
    """Enclosures of sums over the rows added so far, and their scales."""

    def __init__(self, case: Case, outputs: Sequence[str]) -> None:
        self._case, self.outputs = case, outputs
        self._balls: dict[str, Ball] = {}
        self._scales: dict[tuple[str, int], Array] = {}

    def add(self, balls: Mapping[str, Ball], scales: Scales) -> None:
        """Add a block of rows."""
        for output in self.outputs:
            ball = balls[output]
            self._balls[output] = self._balls[output] + ball if output in self._balls else ball
            for power in range(UNEXPLAINED):
                more = scales.of(output, power)
                self._scales[output, power] = self._scales.get((output, power), 0.0) + more

    def answers(self) -> EnclosedAnswers:
        """Return the answers for each column."""
        balls = {
            output: Ball(ball.high[0], ball.low[0], ball.radius[0])
            for output, ball in self._balls.items()
        }
        rows, size = self._case.shape
        # The number of terms depends only on the shape, and each row adds one term.
        first = self._case.part(slice(0, 1))
        exact = {"xhat": np.zeros((1, size)), "r": np.zeros((1, 1))}
        scales_of_one = self._case.operation.scales(first, exact)
        counts = {output: scales_of_one.terms(output) + rows - 1 for output in self.outputs}
        scales = ColumnScales(self._scales, counts, np.zeros((1, 1)))
        return EnclosedAnswers(self._case, balls, scales)


BATCHES = TILED_SIZES["served"]
SAMPLED = 2**14
"""Elements that are compared with exact answers, at some 50 microseconds each."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Measurement:
    """The error of a result; at its worst element, the value, the answer and the tolerance."""

    error: Error
    got: float
    right: float
    allowed: float
    units: float  # the tolerance in natural units


@dataclass(frozen=True, eq=False)
class MeasuredRecord(Record):
    """A record whose results were measured and dropped.

    `symptoms` has the check, the output and the text of other symptoms.
    """

    measured: Mapping[str, Measurement] = field(default_factory=dict)
    symptoms: tuple[tuple[str, str, str], ...] = ()
    kappa: float = 1.0


def sampled_rows(case: Case) -> list[int]:
    """Return the rows that are compared with exact answers: at least the first and the last."""
    rows, size = case.shape
    count = min(rows, max(2, SAMPLED // size))
    return np.unique(np.linspace(0, rows - 1, count).astype(int)).tolist() if rows else []


def run_user_case(runner: Runner, case: Case, tell: Tell) -> Iterator[Record]:
    """Run a user case twice and in batches, measure it, and yield records without results."""
    tell("called")
    plain = runner.run(case, Call())
    if plain.failure:
        yield plain
        return
    again = runner.run(case, Call(AGAIN))
    results, symptoms = _comparable(case, plain)
    if not again.failure:
        symptoms += _check_repeated(case, results, again)
    # Grading needs only the names of the results; the arrays would stay in memory until then.
    names = {output: np.empty(0) for output in plain.results}
    yield replace(again, results=names)
    yield from _run_batches(runner, case, results, names)
    yield MeasuredRecord(
        case.name,
        plain.call,
        names,
        plain.damaged,
        seconds=plain.seconds,
        measured=_measure_all(case, results, tell),
        symptoms=tuple(symptoms),
        kappa=largest_kappa(case),
    )


def _run_batches(
    runner: Runner, case: Case, results: Mapping[str, Array], names: Mapping[str, Array]
) -> Iterator[Record]:
    """Call with other numbers of rows, and compare the bits of each row.

    Batches of fewer rows are the first rows of the case and its last row. In larger ones, up to
    the largest of `BATCHES`, the rows are repeated.
    """
    rows = case.shape[0]
    calls = [Call(ROWS, 0, size) for size in BATCHES if size < rows]
    calls += [Call(ROWS, rows - 1, rows)] if rows > 1 else []
    calls += [Call(TILED, 0, size) for size in BATCHES if size > rows > 0]
    for call in calls:
        # Only the rows of the call are sent to the process of the subject.
        some = slice(0, rows) if call.kind == TILED else slice(call.start, call.stop)
        passed = call if call.kind == TILED else Call()
        record = runner.run(case.part(some), passed)
        guard, change = row_invariance(case, call)
        symptoms = [
            (guard, output, f"{output} {change}")
            for output, result in results.items()
            if case.operation.is_rows(output)
            and (
                output in record.holds or not _same_rows(result[some], record.results.get(output))
            )
        ]
        yield MeasuredRecord(
            case.name,
            call,
            names,
            record.damaged,
            record.failure,
            record.seconds,
            symptoms=() if record.failure else tuple(symptoms),
        )
        if record.failure:
            return


def _same_rows(one: Array, other: Array | None) -> bool:
    """Compare bits; other shapes, and types that are not judged, are findings elsewhere."""
    if other is None or other.shape != one.shape or other.dtype != one.dtype:
        return True
    return one.dtype.name not in FORMATS or same_bits(
        np.ascontiguousarray(one), np.ascontiguousarray(other)
    )


def _check_repeated(
    case: Case, results: Mapping[str, Array], again: Record
) -> Iterator[tuple[str, str, str]]:
    """Yield check, output and text of each difference between the two calls."""
    for output, result in results.items():
        other = again.results.get(output)
        if other is None or other.shape != result.shape:
            text = wrong_shape_text(output, other, result.shape, " when called again")
            yield "shape", output, text
        elif other.dtype != result.dtype or (
            result.dtype.name in FORMATS
            and not same_bits(np.ascontiguousarray(other), np.ascontiguousarray(result))
        ):
            yield repeat_guard(case, output), output, f"{output} {NOT_REPEATABLE}"


def _comparable(case: Case, record: Record) -> tuple[dict[str, Array], list[tuple[str, str, str]]]:
    """Return the results of the right shape, and the symptoms of shape and type."""
    results, symptoms = {}, []
    for output, kind in output_types(case).items():
        if output not in record.results:
            continue
        result = record.results[output]
        shape = case.shape if case.operation.is_rows(output) else case.shape[1:]
        if result is None or result.shape != shape:
            symptoms.append(("shape", output, wrong_shape_text(output, result, shape)))
            continue
        if result.dtype.name != kind:
            text = f"{output} is {result.dtype.name}; it should be {kind}"
            symptoms.append(("type", output, text))
        results[output] = result
    return results, symptoms


def _measure_all(case: Case, results: Mapping[str, Array], tell: Tell) -> dict[str, Measurement]:
    """Measure all results by enclosures, and a sample of rows by exact answers."""
    rows = [output for output in results if case.operation.is_rows(output)]
    measured: dict[str, list[Measurement]] = {output: [] for output in results}
    for block, answers in enclosed_answers(case, list(results)):
        tell(f"row {block.start:,} of {case.shape[0]:,}" if block else "sums over rows")
        for output in answers.types:
            result = results[output] if block is None else results[output][block]
            start = block.start if block else 0
            measured[output].append(_measure_part(answers, output, result, start))
    for row in sampled_rows(case) if rows else []:
        tell(f"row {row:,}, exact answers")
        part = case.part(slice(row, row + 1))
        exact = Expected(part, load_or_compute(part, compute_exact))
        for output in rows:
            result = results[output][row : row + 1]
            measured[output].append(_measure_part(exact, output, result, row))
    return {output: _combined(each) for output, each in measured.items() if each}


def _measure_part(answers: Expected, output: str, result: Array, start: int) -> Measurement:
    """Measure a part of a result, whose first row is `start`."""
    bounds = answers.bounds[output] if isinstance(answers, EnclosedAnswers) else None
    error = measure(answers, output, result, bounds=bounds)
    if (wrong := answers.misplaced(output, result, bounds)).any():
        error = replace(error, needs=UNEXPLAINED, at=first_index(wrong), ulp=np.inf, excess=np.inf)
    at = error.at
    moved = (start + at[0], *at[1:]) if answers.wide[output].ndim == 2 else at
    radius = 0.0 if bounds is None else bounds.radius[at]
    return Measurement(
        replace(error, at=moved),
        float(np.real(result[at])),
        float(answers.wide[output][at]),
        float(answers.allowed(output)[at]) + radius,
        answers.factor(output),
    )


def _combined(measured: Sequence[Measurement]) -> Measurement:
    """Combine the parts of a result: the largest errors, and the worst element."""
    worst = max(measured, key=lambda each: each.error.excess)
    errors = [each.error for each in measured]
    error = replace(
        worst.error,
        ulp=max(each.ulp for each in errors),
        natural=max(each.natural for each in errors),
        needs=max(each.needs for each in errors),
        correct=all(each.correct for each in errors),
    )
    return replace(worst, error=error)


def check_user_case(
    case: Case, records: Collection[Record], outputs: Collection[str]
) -> tuple[list[Symptom], list[MeasuredResult]]:
    """Return the symptoms and the measured results of a user case, as `check_case` does."""
    symptoms: list[Symptom] = []
    results: list[MeasuredResult] = []
    for record in records:
        symptoms += check_call(case, record)
        if not isinstance(record, MeasuredRecord):
            continue
        for guard, output, text in record.symptoms:
            if output in outputs:
                symptoms.append(Symptom(guard, case, record, output, text))
        for output, each in record.measured.items():
            if output in outputs:
                one = MeasuredResult(case, record, output, np.empty(0), each.error, each.units)
                results.append(one)
                if each.error.needs:
                    symptom = accuracy_symptom(results[-1], each.got, each.right)
                    symptoms.append(replace(symptom, right=each.right, allowed=each.allowed))
    return symptoms, results
