"""The grade of each result in each type, from how far off it was in each case."""

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from truenorm.verify.answers.expected import expected
from truenorm.verify.answers.question import types_of
from truenorm.verify.grading.guards import Judged
from truenorm.verify.grading.measuring import UNEXPLAINED
from truenorm.verify.grading.own.measured import MeasuredRecord
from truenorm.verify.grading.report import CaseResult, Grade
from truenorm.verify.operation import Case
from truenorm.verify.types import unit_roundoff

__all__ = ["grade_of", "grades_of", "result_of", "slope"]

GROWS = 4.0  # natural units: below, an error is rounding and says nothing about kappa


def result_of(one: Judged) -> CaseResult:
    """Return what a report says of one result."""
    if isinstance(one.record, MeasuredRecord):
        units, kappa = one.record.measured[one.output].units, one.record.kappa
    else:
        exact = expected(one.case)
        units, kappa = exact.factor(one.output), float(exact.scales.kappa.max(initial=0.0))
    return CaseResult(
        one.case.name,
        one.case.dtype,
        one.case.family,
        one.case.kind,
        one.output,
        one.error.ulp,
        one.error.natural,
        units,
        one.error.needs,
        one.error.correct,
        kappa,
    )


def slope(results: Iterable[CaseResult]) -> float | None:
    """Return the slope of log(error) against log(kappa) over a sweep, or None.

    Where fewer than three errors stand out from rounding, nothing grows. An error as large as the
    result itself has stopped growing.
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


def grades_of(
    cases: Sequence[Case],
    results: Sequence[CaseResult],
    outputs: Collection[str],
    guards: Collection[str],
) -> tuple[Grade, ...]:
    """Return the grades of results, with all cases behind them."""
    there = dict.fromkeys(
        (case.dtype, output) for case in cases for output in outputs if output in types_of(case)
    )
    found = []
    for dtype, output in there:
        mine = [each for each in results if (each.dtype, each.output) == (dtype, output)]
        worst = max(mine, key=lambda each: (each.needs, each.natural, each.ulp), default=None)
        found.append(
            Grade(
                dtype,
                output,
                grade_of(mine, guards),
                max((each.ulp for each in mine), default=math.inf),
                max((each.natural for each in mine), default=math.inf),
                worst.case if worst else "",
                slope(mine),
            )
        )
    return tuple(found)


def grade_of(results: Sequence[CaseResult], guards: Collection[str]) -> str:
    """Return the grade that the errors of one output in one type deserve."""
    needs = dict.fromkeys(("ordinary", "sweep", "hard"), 0)
    for each in results:
        if each.kind in needs:
            needs[each.kind] = max(needs[each.kind], each.needs)
    if not results:
        return "wrong"
    if needs["ordinary"] == UNEXPLAINED:
        if "ordinary" in guards:
            return "wrong"
        needs["ordinary"] = 0
    growth = max(needs.values()) if "growth" in guards else 0
    if growth:
        return "conditional" if growth == 1 else "unstable"
    if all(each.correct for each in results):
        return "correct"
    return "faithful" if all(each.ulp < 1 for each in results) else "stable"
