"""The checks of one case: compare its records with exact answers and among themselves.

`check_case` runs all checks on a case and returns a `Symptom` for each one that fails.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

import numpy as np

from truenorm.verify.calls import PLAIN, TILED, case_of_call
from truenorm.verify.grading.invariance import check_invariance
from truenorm.verify.grading.large_calls import check_large
from truenorm.verify.grading.symptoms import (
    UNEXPLAINED,
    MeasuredResult,
    Symptom,
    first_index,
    measure,
)
from truenorm.verify.operation import Case
from truenorm.verify.oracle import Expected, expected, output_types
from truenorm.verify.running.records import Record
from truenorm.verify.types import Array

POWERS_OF_TWO = "e8m0"
"""A type whose numbers are powers of two: a step is a factor."""


def check_case(
    case: Case, records: Collection[Record], outputs: Collection[str]
) -> tuple[list[Symptom], list[MeasuredResult]]:
    """Compare the records of a case with its exact answers and among themselves.

    Return the symptoms and the results that were measured.
    """
    if case.compared:
        of_calls = (symptom for record in records for symptom in check_call(case, record))
        return [*of_calls, *check_invariance(case, records, outputs)], []
    exact = expected(case)
    symptoms: list[Symptom] = []
    measured: list[MeasuredResult] = []
    for record in records:
        symptoms += check_call(case, record)
        if record.call.how.large:
            symptoms += check_large(case, record, outputs)
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
            error = measure(given, output, result)
            allowed = given.factor(output)
            measured.append(MeasuredResult(case, record, output, result, error, allowed))
            symptoms += _check_accuracy(measured[-1], given, value)
    symptoms += check_invariance(case, records, outputs)
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
        if output_types(case)[output] == POWERS_OF_TWO:
            text += f": off by a factor of {2.0 ** round(error.ulp_at):g}"
        else:
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


def relax_sums(
    symptoms: Iterable[Symptom], measured: Iterable[MeasuredResult]
) -> tuple[list[Symptom], list[MeasuredResult]]:
    """Allow a sum over n rows log2(n) times the error of a stable result.

    A sum in blocks whose number grows with n passes; a sum row by row does not.
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
