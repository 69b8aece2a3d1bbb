"""The grade of each result in each type, from how far off it was in each case."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from truenorm.tools.text import counted
from truenorm.verify.enclosures import largest_kappa
from truenorm.verify.grading.checks import GUARDS, Judged, Symptom
from truenorm.verify.grading.errors import UNEXPLAINED
from truenorm.verify.grading.findings import (
    PLAINER,
    causes_of,
    causes_of_conduct,
    causes_of_recipes,
    claimed_alone,
    explained_once,
    findings_of,
    not_as_asked,
    recipes_in,
    told_in,
    unrounded,
)
from truenorm.verify.grading.report import GRADES, RANGE, VERDICTS, CaseResult, Grade, Report
from truenorm.verify.grading.user_cases import MeasuredRecord, judge_any
from truenorm.verify.operation import EVERYWHERE, Case, Domain
from truenorm.verify.oracle import expected, output_types
from truenorm.verify.running.records import (
    AGAIN,
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    INTERLEAVED,
    LARGE,
    LATER,
    ROWS,
    TWICE,
    Record,
)
from truenorm.verify.subject import SubjectSpec
from truenorm.verify.types import unit_roundoff
from truenorm.verify.user_cases import is_user_case

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
        (case.dtype, output)
        for case in cases
        for output in outputs
        if output in output_types(case)
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


def parted(cases: Sequence[Case], domain: Domain) -> tuple[list[Case], list[Case]]:
    """Return the cases that a domain has, and those beyond it."""
    within = [case for case in cases if _has(domain, case)]
    return within, [case for case in cases if case not in within]


def _has(domain: Domain, case: Case) -> bool:
    """Tell whether every row of a case is in a domain; what is not finite has no size."""
    if domain.is_all:
        return True
    for name in case.operation.inputs_of("data"):
        sizes = np.abs(case.rows[name].astype(np.float64))
        if sizes[np.isfinite(sizes)].max(initial=0.0) > domain.largest:
            return False
    if is_user_case(case):
        return largest_kappa(case) <= domain.kappa
    return bool(expected(case).scales.kappa.max(initial=0.0) <= domain.kappa)


NOWHERE = SubjectSpec()
NEEDS = {TWICE: "saved kept", LARGE: "large calls"}
"""The verdict that is open where such a call was left out."""


def grade(
    subject: str,
    cases: Sequence[Case],
    records: Sequence[Record],
    *,
    outputs: Sequence[str] = (),
    require: str = "stable",
    guards: Collection[str] = tuple(GUARDS),
    level: str = "quick",
    spec: SubjectSpec = NOWHERE,
    recipe: str = "",
    domain: Domain = EVERYWHERE,
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
    spec : SubjectSpec
        Where the subject is defined, for the reproducers.
    recipe : str
        The recipe that is asked for, if one is.
    domain : Domain
        What the grade is about; other cases are left out of it.
    """
    if require not in GRADES:
        raise ValueError(f"require is {require!r}; it is one of {', '.join(GRADES)}")
    operation = cases[0].operation
    suite = cases
    cases, beyond = parted(suite, domain)
    outputs = outputs or [each.name for each in operation.outputs]
    by_case: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_case[record.case].append(record)
    symptoms: list[Symptom] = []
    judged: list[Judged] = []
    for case in cases:
        found = judge_any(case, by_case[case.name], outputs, finite="finite" in guards)
        symptoms += found[0]
        judged += found[1]
    symptoms = [each for each in symptoms if each.guard in (*guards, *PLAINER)]
    all_verdicts = {GUARDS[each.guard] for each in symptoms}
    symptoms = [each for each in explained_once(symptoms) if each.guard in guards]
    symptoms, unclaimed = claimed_alone(symptoms, _claims(cases))
    results = [result_of(one) for one in judged]
    run = [case for case in cases if by_case[case.name]]
    grades = grades_of(run, results, outputs, guards)
    below = {(each.dtype, each.output) for each in grades if not each.reaches(require)}
    symptoms = [
        each
        for each in symptoms
        if GUARDS[each.guard] != "accuracy" or (each.case.dtype, each.output) in below
    ]
    symptoms += unrounded(judged, below, {(each.case.dtype, each.output) for each in symptoms})
    told = told_in(judged)
    recipes = recipes_in(told)
    if recipe and "recipe" in guards:
        symptoms += not_as_asked(recipes, told, recipe)
    not_run = len(cases) - len(run)
    spec = spec._replace(recipe=recipe)
    causes = {
        **causes_of(symptoms, judged),
        **causes_of_conduct(symptoms, run, by_case),
        **causes_of_recipes(symptoms, recipes, told, recipe),
    }
    findings = findings_of(symptoms, grades, spec, not_run, causes)
    verdicts = _verdicts(run, [each for case in run for each in by_case[case.name]], spec.callable)
    verdicts |= dict.fromkeys(all_verdicts & verdicts.keys(), "not judged")
    verdicts |= {each.verdict: "fail" for each in findings if each.verdict in verdicts}
    notes = unclaimed | {NEEDS[each.call.kind]: each.left_out for each in records if each.left_out}
    if not domain.is_all:
        notes[RANGE] = f"rows beyond {domain} are right, too: {counted(len(beyond), 'case')}"
        verdicts[RANGE] = _range(beyond, by_case, outputs, require)
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
        notes=notes,
        domain=domain,
        left_out=len(beyond),
        not_run=not_run,
        recipe=recipe,
        operation=operation,
    )


def _claims(cases: Sequence[Case]) -> set[str]:
    """Return the extensions that a subject was given cases of."""
    return {need for case in cases for need in case.needs}


def _range(
    cases: Sequence[Case],
    by_case: Mapping[str, Sequence[Record]],
    outputs: Collection[str],
    require: str,
) -> str:
    """Return how a subject does beyond its domain."""
    found = [judge_any(case, by_case[case.name], outputs) for case in cases if by_case[case.name]]
    if not found:
        return "not judged"
    results = [result_of(one) for _, judged in found for one in judged]
    grades = grades_of(cases, results, outputs, tuple(GUARDS))
    symptoms, _ = claimed_alone([each for some, _ in found for each in some], _claims(cases))
    fails = {GUARDS[each.guard] for each in symptoms} - {"accuracy"}
    return "fail" if fails or not all(each.reaches(require) for each in grades) else "pass"


def _verdicts(cases: Sequence[Case], records: Sequence[Record], functions: bool) -> dict[str, str]:
    """Return pass for what was looked at, and not judged for the rest.

    A call that failed shows nothing, and a command is a new process each time, without a state.
    """
    done = [record for record in records if not record.failure]
    kind_of = {case.name: case.kind for case in cases}
    kinds = {kind_of[record.case] for record in done}
    calls = {record.call.kind for record in done if record.results}
    of_backward = {name for case in cases for name in case.operation.outputs_of(backward=True)}
    of_sums = {name for case in cases for name in of_backward if not case.operation.is_rows(name)}
    backward, sums = (
        {record.call.kind for record in done if names & record.results.keys()}
        for names in (of_backward, of_sums)
    )
    evidence = dict.fromkeys(VERDICTS, bool(done)) | {
        "special values": "special" in kinds,
        "subnormals kept": "subnormal" in kinds,
        "repeatable": AGAIN in calls,
        "sums repeatable": AGAIN in sums,
        "batch-invariant": ROWS in calls,
        "idle rows": not sums.isdisjoint(IDLE_ROWS),
        "layouts of gradients": not backward.isdisjoint(GRADIENT_LAYOUTS),
        "large calls": LARGE in calls,
        "results kept": functions and LATER in calls,
        "own state": functions and INTERLEAVED in backward,
        "saved kept": functions and TWICE in backward,
    }
    return {verdict: "pass" if seen else "not judged" for verdict, seen in evidence.items()}
