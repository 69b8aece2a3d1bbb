"""From records to a report: a pure function of what a subject returned."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from truenorm.tools.text import counted
from truenorm.verify.domain import EVERYWHERE, Domain
from truenorm.verify.grading.beyond import parted
from truenorm.verify.grading.causes import causes_of, causes_of_conduct, causes_of_recipes
from truenorm.verify.grading.findings import (
    PLAINER,
    claimed_alone,
    explained_once,
    findings_of,
    unrounded,
)
from truenorm.verify.grading.guards import GUARDS, Judged, Symptom
from truenorm.verify.grading.marks import grades_of, result_of
from truenorm.verify.grading.own.judged import judge_any
from truenorm.verify.grading.recipes import not_as_asked, recipes_in, told_in
from truenorm.verify.grading.report import GRADES, RANGE, VERDICTS, Report
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import (
    AGAIN,
    IDLE,
    INTERLEAVED,
    LARGE,
    LATER,
    OF_GRADIENTS,
    ROWS,
    TWICE,
    Record,
)

__all__ = ["grade"]

NOWHERE = Origin()
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
    origin: Origin = NOWHERE,
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
    origin : Origin
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
    origin = origin._replace(recipe=recipe)
    causes = {
        **causes_of(symptoms, judged),
        **causes_of_conduct(symptoms, run, by_case),
        **causes_of_recipes(symptoms, recipes, told, recipe),
    }
    findings = findings_of(symptoms, grades, origin, not_run, causes)
    verdicts = _verdicts(
        run, [each for case in run for each in by_case[case.name]], origin.callable
    )
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
        "idle rows": not sums.isdisjoint(IDLE),
        "layouts of gradients": not backward.isdisjoint(OF_GRADIENTS),
        "large calls": LARGE in calls,
        "results kept": functions and LATER in calls,
        "own state": functions and INTERLEAVED in backward,
        "saved kept": functions and TWICE in backward,
    }
    return {verdict: "pass" if seen else "not judged" for verdict, seen in evidence.items()}
