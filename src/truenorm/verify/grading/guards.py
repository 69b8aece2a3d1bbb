"""The checks of the judge, one by one: each looks at records and says what is wrong with them.

Each guard can be switched off, which the tests use to show that none of them is dead.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from truenorm.verify.answers.expected import Expected, expected
from truenorm.verify.grading.alike.comparisons import comparisons
from truenorm.verify.grading.alike.symptom import Symptom, of_another_shape
from truenorm.verify.grading.large import copies_of
from truenorm.verify.grading.measuring import UNEXPLAINED, Error, measure, misplaced
from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import LARGE, PLAIN, Record, given
from truenorm.verify.types import Array

__all__ = ["GUARDS", "Judged", "Symptom", "conduct", "inaccurate", "judge_case"]

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
    asked = given(case, record.call)
    of_rows = asked.laid_out(asked.x).shape
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
