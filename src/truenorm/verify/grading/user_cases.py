"""What a part of a large case must give, as far as balls tell: answers with a bound for each."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from truenorm.verify.enclosures import Ball, enclose, largest_kappa, row_blocks
from truenorm.verify.grading.checks import (
    Judged,
    Symptom,
    conduct,
    inaccurate,
    judge_case,
    of_another_shape,
    repeat_guard,
)
from truenorm.verify.grading.errors import UNEXPLAINED, Bounds, Error, all_misplaced, measure
from truenorm.verify.operation import Case, Scales
from truenorm.verify.oracle import Expected, compute_exact, load_or_compute, output_types
from truenorm.verify.running.records import AGAIN, Call, Record, Runner
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, same_bits, ulps_of
from truenorm.verify.user_cases import is_user_case


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
        """Return how many numbers are added up for one of the result."""
        return self.counts[output]


class Enclosed(Expected):
    """Answers of which the middle and the radius are known; other ones than `outputs` are none.

    Attributes
    ----------
    bounds : dict of str to Bounds
        By output: how far the middle may be from the answer, and what that may be when rounded.
    """

    def __init__(self, case: Case, balls: Mapping[str, Ball], scales: Scales) -> None:
        self._case = case
        self.types = {name: kind for name, kind in output_types(case).items() if name in balls}
        self.values, self.wide, self.remainders, self.ulps = {}, {}, {}, {}
        self.bounds: dict[str, Bounds] = {}
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
        wide = _rounded(ball.high, kind)
        finite = np.isfinite(wide)
        ulps = ulps_of(np.where(finite, wide, 0.0), kind)
        self.values[output] = wide.astype(dtype_of(kind))
        self.wide[output], self.ulps[output] = wide, ulps
        self.remainders[output] = np.where(finite, ((ball.high - wide) + ball.low) / ulps, 0.0)
        # Beside the radius, what float64 rounds here and in `measure`.
        radius = ball.radius * (1 + 2.0**-50) + 2.0**-51 * np.abs(ball.low) + 2.0**-52 * ulps
        low, high = ball.high + (ball.low - radius), ball.high + (ball.low + radius)
        if kind != "float64":  # rounded twice: what is next to a tie of the type is left open
            low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
        self.bounds[output] = Bounds(radius, _rounded(low, kind), _rounded(high, kind))


def _rounded(values: Float64s, kind: str) -> Float64s:
    """Return float64 numbers, rounded to a type, ties to even, as float64 again."""
    ulps = ulps_of(values, kind)
    found = np.rint(values / ulps) * ulps
    return np.where(np.abs(found) < 2.0 ** (FORMATS[kind].limit - 1) * 2, found, found * np.inf)


def answered(
    case: Case, outputs: Sequence[str]
) -> Iterator[tuple[slice, Enclosed] | tuple[None, Enclosed]]:
    """Yield some rows and the answers of those; then, with None, sums over all of them.

    Each has the `outputs` that it is about, and no more is in memory than one of them.
    """
    rows = [output for output in outputs if case.operation.is_rows(output)]
    sums = _Sums(case, [output for output in outputs if output not in rows])
    for some in row_blocks(case):
        part = case.part(some)
        balls = enclose(part)
        exact = {"xhat": balls["xhat"].high, "r": balls["r"].high}
        scales = case.operation.scales(part, exact)
        sums.add(balls, scales)
        yield some, Enclosed(part, {output: balls[output] for output in rows}, scales)
    if case.shape[0] and sums.outputs:
        yield None, sums.enclosed()


class _Sums:
    """Sums over rows as balls, and their scales, as far as rows have come."""

    def __init__(self, case: Case, outputs: Sequence[str]) -> None:
        self._case, self.outputs = case, outputs
        self._balls: dict[str, Ball] = {}
        self._scales: dict[tuple[str, int], Array] = {}

    def add(self, balls: Mapping[str, Ball], scales: Scales) -> None:
        """Add some rows."""
        for output in self.outputs:
            ball = balls[output]
            self._balls[output] = self._balls[output] + ball if output in self._balls else ball
            for power in range(UNEXPLAINED):
                more = scales.of(output, power)
                self._scales[output, power] = self._scales.get((output, power), 0.0) + more

    def enclosed(self) -> Enclosed:
        """Return the answers, one for each column."""
        balls = {
            output: Ball(ball.high[0], ball.low[0], ball.radius[0])
            for output, ball in self._balls.items()
        }
        rows, size = self._case.shape
        # How many terms a sum has is told by the shape alone, and grows by one with each row.
        first = self._case.part(slice(0, 1))
        exact = {"xhat": np.zeros((1, size)), "r": np.zeros((1, 1))}
        of_one = self._case.operation.scales(first, exact)
        counts = {output: of_one.terms(output) + rows - 1 for output in self.outputs}
        scales = ColumnScales(self._scales, counts, np.zeros((1, 1)))
        return Enclosed(self._case, balls, scales)


SAMPLED = 2**14
"""Elements that integers are asked for, at some 50 microseconds each; two rows at least."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """How far a result is off; at its worst element, what came, what should have, and the room."""

    error: Error
    got: float
    right: float
    allowed: float
    units: float  # what is allowed in natural units


@dataclass(frozen=True, eq=False)
class MeasuredRecord(Record):
    """A record whose results were measured; `seen` has guard, output and text of what else is."""

    measured: Mapping[str, Measured] = field(default_factory=dict)
    seen: tuple[tuple[str, str, str], ...] = ()
    kappa: float = 1.0


def sample_of(case: Case) -> list[int]:
    """Return the rows that integers are asked for: the first, the last, and some between."""
    rows, size = case.shape
    count = min(rows, max(2, SAMPLED // size))
    return np.unique(np.linspace(0, rows - 1, count).astype(int)).tolist() if rows else []


def own_records(runner: Runner, case: Case, tell: Tell) -> Iterator[Record]:
    """Make the call twice, and yield a record of each, without results."""
    tell("called")
    plain = runner.run(case, Call())
    if plain.failure:
        yield plain
        return
    again = runner.run(case, Call(AGAIN))
    results, seen = _comparable(case, plain)
    if not again.failure:
        seen += _unlike(case, results, again)
    # That they came is all that grading asks; numbers would stay in memory until then.
    came = {output: np.empty(0) for output in plain.results}
    yield replace(again, results=came)
    measured = _measured(case, {k: v.reshape(_shape(case, k)) for k, v in results.items()}, tell)
    yield MeasuredRecord(
        case.name,
        plain.call,
        came,
        plain.damaged,
        seconds=plain.seconds,
        measured=measured,
        seen=tuple(seen),
        kappa=largest_kappa(case),
    )


def _unlike(
    case: Case, results: Mapping[str, Array], again: Record
) -> Iterator[tuple[str, str, str]]:
    """Yield guard, output and text of what the second call returned otherwise than the first."""
    for output, result in results.items():
        other = again.results.get(output)
        if other is None or other.shape != result.shape:
            text = of_another_shape(output, other, result.shape, " when called again")
            yield "shape", output, text
        elif other.dtype != result.dtype or (
            result.dtype.name in FORMATS
            and not same_bits(np.ascontiguousarray(other), np.ascontiguousarray(result))
        ):
            guard = repeat_guard(case, output)
            yield guard, output, f"{output} has other bits when called again"


def _shape(case: Case, output: str) -> tuple[int, ...]:
    return case.shape if case.operation.is_rows(output) else case.shape[1:]


def _comparable(case: Case, record: Record) -> tuple[dict[str, Array], list[tuple[str, str, str]]]:
    """Return the results of the right shape, and what is wrong with the others."""
    found, seen = {}, []
    for output, kind in output_types(case).items():
        if output not in record.results:
            continue
        result, shape = record.results[output], _shape(case, output)
        if result is None or result.shape != shape:
            seen.append(("shape", output, of_another_shape(output, result, shape)))
            continue
        if result.dtype.name != kind:
            seen.append(("type", output, f"{output} is {result.dtype.name}; it should be {kind}"))
        found[output] = result
    return found, seen


def _measured(case: Case, results: Mapping[str, Array], tell: Tell) -> dict[str, Measured]:
    """Measure all results."""
    rows = [output for output in results if case.operation.is_rows(output)]
    found: dict[str, list[Measured]] = {output: [] for output in results}
    for some, answer in answered(case, list(results)):
        tell(f"row {some.start:,} of {case.shape[0]:,}" if some else "sums over rows")
        for output in answer.types:
            got = results[output] if some is None else results[output][some]
            found[output].append(_one(answer, output, got, some.start if some else 0))
    for row in sample_of(case) if rows else []:
        tell(f"row {row:,} in integers")
        part = case.part(slice(row, row + 1))
        integers = Expected(part, load_or_compute(part, compute_exact))
        for output in rows:
            found[output].append(_one(integers, output, results[output][row : row + 1], row))
    return {output: _worst(some) for output, some in found.items() if some}


def _one(answer: Expected, output: str, got: Array, start: int) -> Measured:
    """Measure a part of a result, whose first row is `start`."""
    known: Bounds | None = answer.bounds[output] if isinstance(answer, Enclosed) else None
    error = measure(answer, output, got, known=known)
    if (wrong := all_misplaced(answer, output, got, known)).any():
        spot = tuple(map(int, np.argwhere(wrong)[0]))
        error = replace(error, needs=UNEXPLAINED, at=spot, ulp=np.inf, excess=np.inf)
    at = error.at
    moved = (start + at[0], *at[1:]) if answer.wide[output].ndim == 2 else at
    allowed = float(answer.allowed(output)[at]) + (0.0 if known is None else known.radius[at])
    return Measured(
        replace(error, at=moved),
        float(np.real(got[at])),
        float(answer.wide[output][at]),
        allowed,
        answer.factor(output),
    )


def _worst(some: Sequence[Measured]) -> Measured:
    """Return what holds of all parts, shown at the element that is furthest off."""
    shown = max(some, key=lambda each: each.error.excess)
    errors = [each.error for each in some]
    whole = replace(
        shown.error,
        ulp=max(each.ulp for each in errors),
        natural=max(each.natural for each in errors),
        needs=max(each.needs for each in errors),
        correct=all(each.correct for each in errors),
    )
    return replace(shown, error=whole)


def judge_any(
    case: Case, records: Collection[Record], outputs: Collection[str], *, finite: bool = True
) -> tuple[list[Symptom], list[Judged]]:
    """Hold all records of a case against its answers: see `judge_case`."""
    if not is_user_case(case):
        return judge_case(case, records, outputs, finite=finite)
    symptoms: list[Symptom] = []
    judged: list[Judged] = []
    for record in records:
        symptoms += conduct(case, record)
        if not isinstance(record, MeasuredRecord):
            continue
        for guard, output, text in record.seen:
            if output in outputs:
                symptoms.append(Symptom(guard, case, record, output, text))
        for output, found in record.measured.items():
            if output in outputs:
                one = Judged(case, record, output, np.empty(0), found.error)
                judged.append(one)
                if found.error.needs:
                    symptom = inaccurate(one, found.got, found.right)
                    symptoms.append(replace(symptom, right=found.right, allowed=found.allowed))
    return symptoms, judged
