"""Put a large case to a subject, and measure what comes back some rows at a time.

Every element of every row is held against an answer with a proven bound
(`truenorm.verify.own.balls`): it is wrong if it is further off than the tolerance and that bound.
Some rows are held against integers as well, one after the other. Sums over rows are added up as
balls. What came back is forgotten as soon as it is measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from truenorm.verify.answers.expected import Expected, computed
from truenorm.verify.answers.question import types_of
from truenorm.verify.answers.store import kept
from truenorm.verify.grading.alike.comparisons import repeat_guard
from truenorm.verify.grading.alike.symptom import of_another_shape
from truenorm.verify.grading.measuring import UNEXPLAINED, Bounds, Error, all_misplaced, measure
from truenorm.verify.grading.own.answered import answered
from truenorm.verify.grading.own.enclosed import Enclosed
from truenorm.verify.operation import Case
from truenorm.verify.own.norms import condition
from truenorm.verify.runs.calls import AGAIN, Call, Record, Runner
from truenorm.verify.types import FORMATS, Array, same_bits

__all__ = ["Measured", "MeasuredRecord", "own_records", "sample_of"]

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
        kappa=condition(case),
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
    for output, kind in types_of(case).items():
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
        integers = Expected(part, kept(part, computed))
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
