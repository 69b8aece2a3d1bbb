"""From records to a report: a pure function of what a subject returned."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from truenorm.verify.answers.expected import expected
from truenorm.verify.grading.findings import explained_once, findings_of, unrounded
from truenorm.verify.grading.guards import GUARDS, Judged, Symptom, judge_case
from truenorm.verify.grading.measuring import UNEXPLAINED
from truenorm.verify.grading.mistaken import mistaken_in
from truenorm.verify.grading.recipes import not_as_asked, recipes_in
from truenorm.verify.grading.report import GRADES, VERDICTS, CaseResult, Grade, Report
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import AGAIN, INTERLEAVED, LARGE, LATER, ROWS, TWICE, Record
from truenorm.verify.types import unit_roundoff

__all__ = ["grade", "slope"]

NOWHERE = Origin()
NEEDS = {TWICE: "saved kept", LARGE: "large calls"}
"""The verdict that is open where such a call was left out."""
GROWS = 4.0  # natural units: below, an error is rounding and says nothing about kappa


def grade(
    subject: str,
    cases: Sequence[Case],
    records: Sequence[Record],
    *,
    outputs: Sequence[str] = (),
    require: str = "stable",
    guards: Collection[str] = tuple(GUARDS),
    level: str = "quick",
    origin: Origin = NOWHERE,
    recipe: str = "",
) -> Report:
    """Judge what a subject returned.

    Parameters
    ----------
    subject : str
        Its name.
    cases : sequence of Case
    records : sequence of Record
        What it returned, in any order.
    outputs : sequence of str
        The results that it has; by default, all that the operation has.
    require : str
        The least grade that passes.
    guards : collection of str
        The checks that are made: all, unless the judge itself is being tested.
    level : str
        For the report.
    origin : Origin
        Where the subject is defined, for the reproducers.
    recipe : str
        The recipe that is asked for, if one is.
    """
    if require not in GRADES:
        raise ValueError(f"require is {require!r}; it is one of {', '.join(GRADES)}")
    operation = cases[0].operation
    outputs = outputs or [each.name for each in operation.outputs]
    by_case: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_case[record.case].append(record)
    symptoms: list[Symptom] = []
    judged: list[Judged] = []
    for case in cases:
        found = judge_case(case, by_case[case.name], outputs, finite="finite" in guards)
        symptoms += found[0]
        judged += found[1]
    symptoms = [each for each in symptoms if each.guard in guards or each.guard == "repeat"]
    all_verdicts = {GUARDS[each.guard] for each in symptoms}
    symptoms = [each for each in explained_once(symptoms) if each.guard in guards]
    results = [_result(one) for one in judged]
    run = [case for case in cases if by_case[case.name]]
    grades = _grades(run, results, outputs, guards)
    below = {(each.dtype, each.output) for each in grades if not each.reaches(require)}
    symptoms = [
        each
        for each in symptoms
        if GUARDS[each.guard] != "accuracy" or (each.case.dtype, each.output) in below
    ]
    symptoms += unrounded(judged, below, {(each.case.dtype, each.output) for each in symptoms})
    recipes = recipes_in(judged)
    if recipe and "recipe" in guards:
        symptoms += not_as_asked(recipes, judged, recipe)
    not_run = len(cases) - len(run)
    origin = origin._replace(recipe=recipe)
    findings = findings_of(symptoms, grades, origin, not_run, mistaken_in(judged))
    verdicts = _verdicts(run, records, origin.callable)
    verdicts |= dict.fromkeys(all_verdicts & verdicts.keys(), "not judged")
    verdicts |= {each.verdict: "fail" for each in findings if each.verdict in verdicts}
    return Report(
        subject,
        level,
        require,
        grades,
        verdicts,
        findings,
        tuple(results),
        len(run),
        sum(record.seconds for record in records),
        recipes=recipes,
        notes={NEEDS[each.call.kind]: each.left_out for each in records if each.left_out},
        operation=operation,
    )


def _verdicts(cases: Sequence[Case], records: Sequence[Record], functions: bool) -> dict[str, str]:
    """Return pass for what was looked at, and not judged for the rest.

    A call that failed shows nothing, and a command is a new process each time, without a state.
    """
    done = [record for record in records if not record.failure]
    kind_of = {case.name: case.kind for case in cases}
    kinds = {kind_of[record.case] for record in done}
    calls = {record.call.kind for record in done if record.results}
    of_backward = {name for case in cases for name in case.operation.outputs_of(backward=True)}
    backward = {record.call.kind for record in done if of_backward & record.results.keys()}
    evidence = dict.fromkeys(VERDICTS, bool(done)) | {
        "special values": "special" in kinds,
        "subnormals kept": "subnormal" in kinds,
        "repeatable": AGAIN in calls,
        "batch-invariant": ROWS in calls,
        "large calls": LARGE in calls,
        "results kept": functions and LATER in calls,
        "own state": functions and INTERLEAVED in backward,
        "saved kept": functions and TWICE in backward,
    }
    return {verdict: "pass" if seen else "not judged" for verdict, seen in evidence.items()}


def _result(one: Judged) -> CaseResult:
    exact = expected(one.case)
    return CaseResult(
        one.case.name,
        one.case.dtype,
        one.case.family,
        one.case.kind,
        one.output,
        one.error.ulp,
        one.error.natural,
        exact.factor(one.output),
        one.error.needs,
        one.error.correct,
        float(exact.scales.kappa.max(initial=0.0)),
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


def _grades(
    cases: Sequence[Case],
    results: Sequence[CaseResult],
    outputs: Collection[str],
    guards: Collection[str],
) -> tuple[Grade, ...]:
    there = dict.fromkeys(
        (case.dtype, output)
        for case in cases
        for output in outputs
        if output in expected(case).types
    )
    found = []
    for dtype, output in there:
        mine = [each for each in results if (each.dtype, each.output) == (dtype, output)]
        worst = max(mine, key=lambda each: (each.needs, each.natural, each.ulp), default=None)
        found.append(
            Grade(
                dtype,
                output,
                _grade_of(mine, guards),
                max((each.ulp for each in mine), default=math.inf),
                max((each.natural for each in mine), default=math.inf),
                worst.case if worst else "",
                slope(mine),
            )
        )
    return tuple(found)


def _grade_of(results: Sequence[CaseResult], guards: Collection[str]) -> str:
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
