"""Grade each output in each type by the errors of its results."""

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from truenorm.verify.grading.report import CaseResult, Grade
from truenorm.verify.grading.symptoms import UNEXPLAINED, MeasuredResult, Symptom
from truenorm.verify.grading.user_cases import MeasuredRecord
from truenorm.verify.norms.enclosures import largest_kappa
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected, output_types
from truenorm.verify.types import unit_roundoff
from truenorm.verify.user_cases import is_user_case


def kappa_of(case: Case) -> float:
    """Return the largest condition number of the rows of a case; 0 if no answers are known."""
    if is_user_case(case):
        return largest_kappa(case)
    return 0.0 if case.compared else float(expected(case).scales.kappa.max(initial=0.0))


def case_result(one: MeasuredResult) -> CaseResult:
    """Return the entry of a measured result in the report."""
    kappa = one.record.kappa if isinstance(one.record, MeasuredRecord) else kappa_of(one.case)
    return CaseResult(
        one.case.name,
        one.case.dtype,
        one.case.family,
        one.case.kind,
        one.output,
        one.error.ulp,
        one.error.natural,
        one.allowed,
        one.error.needs,
        one.error.correct,
        kappa,
    )


def grade_outputs(
    cases: Sequence[Case],
    results: Sequence[CaseResult],
    every_result: Sequence[CaseResult],
    outputs: Collection[str],
    symptoms: Iterable[Symptom],
) -> tuple[Grade, ...]:
    """Grade each output in each type over all cases.

    `results` are in the domain; `every_result` has also the results outside, since large kappa
    show best how errors grow. An output that has the wrong shape in one case is wrong.
    """
    misshapen = {
        each.type_and_output: each.case.name for each in symptoms if each.guard == "shape"
    }
    places = dict.fromkeys(
        (case.dtype, output)
        for case in cases
        for output in outputs
        if output in output_types(case)
    )
    grades = []
    for dtype, output in places:
        here, everywhere = (
            [each for each in some if (each.dtype, each.output) == (dtype, output)]
            for some in (results, every_result)
        )
        if (dtype, output) in misshapen:
            here = []
        worst = max(here, key=lambda each: each.badness, default=None)
        grades.append(
            Grade(
                dtype,
                output,
                grade_output(here),
                max((each.ulp for each in here), default=math.inf),
                max((each.natural for each in here), default=math.inf),
                worst.case if worst else misshapen.get((dtype, output), ""),
                kappa_slope(everywhere),
            )
        )
    return tuple(grades)


def grade_output(results: Sequence[CaseResult]) -> str:
    """Return the grade of one output in one type."""
    needs = dict.fromkeys(("ordinary", "sweep", "hard"), 0)
    for each in results:
        if each.kind in needs:
            needs[each.kind] = max(needs[each.kind], each.needs)
    if not results:
        return "wrong"
    if needs["ordinary"] == UNEXPLAINED:
        return "wrong"
    if growth := max(needs.values()):
        return "conditional" if growth == 1 else "unstable"
    if all(each.correct for each in results):
        return "correct"
    return "faithful" if all(each.ulp < 1 for each in results) else "stable"


def grade_of(measured: Sequence[MeasuredResult]) -> str:
    """Return the grade of results of one output in one type."""
    return grade_output(list(map(case_result, measured)))


GROWS = 4.0
"""Natural units below which an error is rounding and says nothing about kappa."""


def kappa_slope(results: Iterable[CaseResult]) -> float | None:
    """Return the slope of log(error) against log(kappa) over a sweep.

    Return None if fewer than three errors exceed rounding. An error as large as the result has
    stopped growing and is left out.
    """
    points = [
        (math.log10(each.kappa), math.log10(each.natural))
        for each in results
        if each.kind == "sweep"
        and each.kappa > 1
        and GROWS < each.natural < 0.2 / unit_roundoff(each.dtype)
    ]
    if len(points) < 3:
        return None
    kappas, errors = np.array(points).T
    return float(np.polyfit(kappas, errors, 1)[0])
