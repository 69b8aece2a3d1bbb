"""Grade a subject: from the records of all cases to a report.

`grade` runs the checks on every case, grades each output in each type, diagnoses what failed, and
turns the symptoms into findings.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from truenorm.tools.text import counted
from truenorm.verify.diagnosis import conduct
from truenorm.verify.diagnosis.accuracy import (
    UNKNOWN,
    Diagnosis,
    Evidence,
    diagnose,
)
from truenorm.verify.diagnosis.conduct import CaseRecords, Explain
from truenorm.verify.enclosures import largest_kappa
from truenorm.verify.grading.checks import (
    GUARDS,
    UNEXPLAINED,
    MeasuredResult,
    Symptom,
    check_case,
)
from truenorm.verify.grading.recipes import (
    backward_evidence,
    diagnose_recipes,
    identify_backward,
    identify_forward,
    recipe_evidence,
    recipe_symptoms,
)
from truenorm.verify.grading.report import (
    ACCURACY,
    GRADES,
    RANGE,
    VERDICTS,
    CaseResult,
    Finding,
    Grade,
    Report,
)
from truenorm.verify.grading.reproducer import reproducer
from truenorm.verify.grading.user_cases import MeasuredRecord, check_user_case
from truenorm.verify.operation import EVERYWHERE, Case, Domain
from truenorm.verify.oracle import expected, output_types
from truenorm.verify.running.records import (
    AGAIN,
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    INTERLEAVED,
    LARGE,
    LATER,
    PLAIN,
    ROWS,
    TWICE,
    Record,
)
from truenorm.verify.subject import SubjectSpec
from truenorm.verify.types import unit_roundoff
from truenorm.verify.user_cases import is_user_case

NOWHERE = SubjectSpec()
VERDICT_OF_CALL = {TWICE: "saved kept", LARGE: "large calls"}
"""The verdict that is not judged if a call of this kind was left out."""


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
    """Grade the results of a subject.

    The `records` of its calls may have any order. `outputs` are by default all of the operation.
    `guards` are the checks to make; tests of the judge leave some out. `spec` says where the
    subject is defined, for the reproducers. Cases outside `domain` have a verdict of their own.
    """
    if require not in GRADES:
        raise ValueError(f"require must be one of {', '.join(GRADES)}; got {require!r}")
    operation = cases[0].operation
    cases, beyond = split_by_domain(cases, domain)
    outputs = outputs or [each.name for each in operation.outputs]
    by_case: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_case[record.case].append(record)
    symptoms, measured = _check_all(cases, by_case, outputs, finite="finite" in guards)
    symptoms = [each for each in symptoms if each.guard in (*guards, *PRIMARY)]
    failing_verdicts = {GUARDS[each.guard] for each in symptoms}
    symptoms = [each for each in drop_consequences(symptoms) if each.guard in guards]
    symptoms, notes = drop_unclaimed(symptoms, _claims(cases))
    results = [case_result(each) for each in measured]
    run = [case for case in cases if by_case[case.name]]
    grades = grade_outputs(run, results, outputs, guards)
    below = {(each.dtype, each.output) for each in grades if not each.reaches(require)}
    symptoms = [
        each
        for each in symptoms
        if GUARDS[each.guard] != ACCURACY or each.type_and_output in below
    ]
    symptoms += _rounding_symptoms(measured, below - {each.type_and_output for each in symptoms})
    evidence = recipe_evidence(measured)
    wrong = {each.dtype for each in grades if (each.output, each.grade) == (outputs[0], "wrong")}
    recipes = tuple(
        identify_forward(each, explain=dtype not in wrong) for dtype, each in evidence.items()
    )
    backward_recipes = tuple(map(identify_backward, backward_evidence(measured).values()))
    if recipe and "recipe" in guards:
        symptoms += recipe_symptoms(recipes, evidence, recipe)
    not_run = len(cases) - len(run)
    spec = spec._replace(recipe=recipe)
    diagnoses = {
        **diagnose_accuracy(symptoms, measured),
        **diagnose_conduct(symptoms, run, by_case),
        **diagnose_recipes(symptoms, recipes),
    }
    findings = make_findings(symptoms, grades, spec, not_run, diagnoses)
    run_records = [each for case in run for each in by_case[case.name]]
    verdicts = _judged_verdicts(run, run_records, in_process=spec.callable)
    verdicts |= dict.fromkeys(failing_verdicts & verdicts.keys(), "not judged")
    verdicts |= {each.verdict: "fail" for each in findings if each.verdict in verdicts}
    notes |= {VERDICT_OF_CALL[each.call.kind]: each.left_out for each in records if each.left_out}
    if not domain.is_all:
        notes[RANGE] = f"rows outside {domain} are right, too: {counted(len(beyond), 'case')}"
        verdicts[RANGE] = _verdict_beyond_domain(beyond, by_case, outputs, require)
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
        backward_recipes=backward_recipes,
        notes=notes,
        domain=domain,
        left_out=len(beyond),
        not_run=not_run,
        recipe=recipe,
        operation=operation,
    )


def _check_all(
    cases: Iterable[Case],
    by_case: Mapping[str, Sequence[Record]],
    outputs: Collection[str],
    *,
    finite: bool = True,
) -> tuple[list[Symptom], list[MeasuredResult]]:
    symptoms: list[Symptom] = []
    measured: list[MeasuredResult] = []
    for case in cases:
        records = by_case[case.name]
        if is_user_case(case):
            more_symptoms, more_measured = check_user_case(case, records, outputs)
        else:
            more_symptoms, more_measured = check_case(case, records, outputs, finite=finite)
        symptoms += more_symptoms
        measured += more_measured
    return symptoms, measured


def split_by_domain(cases: Sequence[Case], domain: Domain) -> tuple[list[Case], list[Case]]:
    """Return the cases within a domain, and those outside it."""
    within = [case for case in cases if _is_in_domain(case, domain)]
    return within, [case for case in cases if case not in within]


def _is_in_domain(case: Case, domain: Domain) -> bool:
    """Return True if every row of a case is in a domain; non-finite values have no size."""
    if domain.is_all:
        return True
    for name in case.operation.inputs_of("data"):
        sizes = np.abs(case.rows[name].astype(np.float64))
        if sizes[np.isfinite(sizes)].max(initial=0.0) > domain.largest:
            return False
    if is_user_case(case):
        return largest_kappa(case) <= domain.kappa
    return bool(expected(case).scales.kappa.max(initial=0.0) <= domain.kappa)


def case_result(one: MeasuredResult) -> CaseResult:
    """Return the entry of a measured result in the report."""
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


def grade_outputs(
    cases: Sequence[Case],
    results: Sequence[CaseResult],
    outputs: Collection[str],
    guards: Collection[str],
) -> tuple[Grade, ...]:
    """Grade each output in each type over all cases."""
    places = dict.fromkeys(
        (case.dtype, output)
        for case in cases
        for output in outputs
        if output in output_types(case)
    )
    grades = []
    for dtype, output in places:
        here = [each for each in results if (each.dtype, each.output) == (dtype, output)]
        worst = max(here, key=lambda each: each.badness, default=None)
        grades.append(
            Grade(
                dtype,
                output,
                grade_output(here, guards),
                max((each.ulp for each in here), default=math.inf),
                max((each.natural for each in here), default=math.inf),
                worst.case if worst else "",
                kappa_slope(here),
            )
        )
    return tuple(grades)


def grade_output(results: Sequence[CaseResult], guards: Collection[str]) -> str:
    """Return the grade of one output in one type."""
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


def _judged_verdicts(
    cases: Sequence[Case], records: Sequence[Record], *, in_process: bool
) -> dict[str, str]:
    """Return pass for each verdict that the records cover, and not judged for the others.

    A call that failed shows nothing. A command is a new process each time and has no state.
    """
    done = [record for record in records if not record.failure]
    kind_of = {case.name: case.kind for case in cases}
    kinds = {kind_of[record.case] for record in done}
    calls = {record.call.kind for record in done if record.results}
    gradients = {name for case in cases for name in case.operation.outputs_of(backward=True)}
    column_sums = {
        name for case in cases for name in gradients if not case.operation.is_rows(name)
    }
    backward, sums = (
        {record.call.kind for record in done if names & record.results.keys()}
        for names in (gradients, column_sums)
    )
    covered = dict.fromkeys(VERDICTS, bool(done)) | {
        "special values": "special" in kinds,
        "subnormals kept": "subnormal" in kinds,
        "repeatable": AGAIN in calls,
        "sums repeatable": AGAIN in sums,
        "batch-invariant": ROWS in calls,
        "idle rows": not sums.isdisjoint(IDLE_ROWS),
        "layouts of gradients": not backward.isdisjoint(GRADIENT_LAYOUTS),
        "large calls": LARGE in calls,
        "results kept": in_process and LATER in calls,
        "own state": in_process and INTERLEAVED in backward,
        "saved kept": in_process and TWICE in backward,
    }
    return {verdict: "pass" if judged else "not judged" for verdict, judged in covered.items()}


def _verdict_beyond_domain(
    cases: Sequence[Case],
    by_case: Mapping[str, Sequence[Record]],
    outputs: Collection[str],
    require: str,
) -> str:
    run = [case for case in cases if by_case[case.name]]
    if not run:
        return "not judged"
    symptoms, measured = _check_all(run, by_case, outputs)
    grades = grade_outputs(cases, list(map(case_result, measured)), outputs, tuple(GUARDS))
    failed = {GUARDS[each.guard] for each in drop_unclaimed(symptoms, _claims(cases))[0]} - {
        ACCURACY
    }
    return "fail" if failed or not all(each.reaches(require) for each in grades) else "pass"


IDLE_CLAIM = "idle-rows"
"""The extension by which a subject claims that rows of zero gradient change no sum."""
PRIMARY = ("repeat", "sums", "position", "batch")
"""Checks whose symptoms have consequences in other checks, the simplest first."""
CONSEQUENCES = {
    **dict.fromkeys(("position", "stale", "overwritten", "spent", "idle", "layout"), PRIMARY[:2]),
    "batch": PRIMARY[:3],
    "padding": PRIMARY,
}
"""By check: the checks whose symptoms, of the same output, explain its own."""


def drop_consequences(symptoms: Sequence[Symptom]) -> list[Symptom]:
    """Drop symptoms that follow from simpler ones.

    If a repeated call has different bits, so has any other call; if a row has different bits at
    another position, so it has in another batch. If an input is overwritten, the next call with
    it differs. An output that is wrong on ordinary input is wrong on all others.
    """
    places = defaultdict(set)
    for each in symptoms:
        places[each.guard].add(each.type_and_output)

    def is_consequence(each: Symptom) -> bool:
        place = each.type_and_output
        if each.guard in CONSEQUENCES:
            overwritten = each.guard == "spent" and (place[0], "") in places["inputs"]
            return overwritten or any(place in places[guard] for guard in CONSEQUENCES[each.guard])
        inaccurate = each.natural > 0 and each.guard in ("growth", "special", "subnormal", "large")
        return inaccurate and place in places["ordinary"]

    return [each for each in symptoms if not is_consequence(each)]


def drop_unclaimed(
    symptoms: Sequence[Symptom], claims: Collection[str]
) -> tuple[list[Symptom], dict[str, str]]:
    """Drop symptoms of properties that the subject does not claim; return notes by verdict.

    Splitting a sum by the number of rows is legitimate unless the subject claims otherwise.
    """
    idle = [each for each in symptoms if each.guard == "idle"]
    if not idle or IDLE_CLAIM in claims:
        return list(symptoms), {}
    changed = " and ".join(dict.fromkeys(each.output for each in idle))
    note = f"rows of zero gradient change {changed}: a finding with also=[{IDLE_CLAIM!r}]"
    return [each for each in symptoms if each.guard != "idle"], {GUARDS["idle"]: note}


def _claims(cases: Iterable[Case]) -> set[str]:
    """Return the extensions that the cases need, which the subject claims."""
    return {need for case in cases for need in case.needs}


def _rounding_symptoms(
    measured: Iterable[MeasuredResult], places: Collection[tuple[str, str]]
) -> list[Symptom]:
    """Return the results that are stable but not rounded as required, at these places."""
    return [
        Symptom(
            "rounding",
            one.case,
            one.record,
            one.output,
            f"{one.output} is off by {one.error.ulp:.3g} ulp",
            severity=one.error.ulp,
        )
        for one in measured
        if one.type_and_output in places and not one.error.correct
    ]


Diagnoses = dict[tuple[str, str, str], Diagnosis]
"""By check, type and output; ``accuracy`` stands for all checks of accuracy."""
EXPLANATIONS: dict[str, Explain] = {
    "raised": conduct.explain_raised,
    "shape": conduct.explain_shape,
    "type": conduct.explain_type,
    "special": conduct.explain_special,
    "subnormal": conduct.explain_subnormal,
    "repeat": conduct.explain_repeat,
    "sums": conduct.explain_repeat,
    "position": conduct.explain_position,
    "batch": conduct.explain_batch,
    "large": conduct.explain_large,
    "inputs": conduct.explain_inputs,
    "overwritten": conduct.explain_overwritten,
    "stale": conduct.explain_stale,
    "spent": conduct.explain_spent,
}


def diagnose_accuracy(
    symptoms: Collection[Symptom], measured: Collection[MeasuredResult]
) -> Diagnoses:
    """Diagnose the inaccurate outputs of each type.

    If an output is wrong on ordinary input, use only those cases, where no large kappa blurs the
    result, and cases in which eps dominates, where a diagnosis about eps must hold, too.
    """
    guards: dict[tuple[str, str], set[str]] = {}
    for each in symptoms:
        if GUARDS.get(each.guard) == ACCURACY:
            guards.setdefault(each.type_and_output, set()).add(each.guard)
    diagnoses = {}
    for (dtype, output), failed in guards.items():
        ordinary = "ordinary" in failed
        kinds = ("ordinary",) if ordinary else ("ordinary", "sweep", "hard")
        wrong_from = UNEXPLAINED if ordinary else 1
        evidence = [
            Evidence(one.case, output, one.result, one.error.needs < wrong_from)
            for one in measured
            if one.type_and_output == (dtype, output)
            and (one.case.kind in kinds or (one.case.kind == "hard" and one.case.eps >= 1))
            and not is_user_case(one.case)  # its results are not kept
        ]
        if evidence:
            hypotheses = evidence[0].case.operation.hypotheses(output)
            diagnoses[ACCURACY, dtype, output] = diagnose(evidence, hypotheses, by_size=ordinary)
    return diagnoses


def diagnose_conduct(
    symptoms: Collection[Symptom],
    cases: Collection[Case],
    records: Mapping[str, Sequence[Record]],
) -> Diagnoses:
    """Diagnose all other symptoms from the records of all cases of the type."""
    wrong: dict[tuple[str, str, str], set[str]] = {}
    for each in symptoms:
        if each.guard in EXPLANATIONS:
            wrong.setdefault((each.guard, *each.type_and_output), set()).add(each.case.name)
    diagnoses = {}
    for (guard, dtype, output), names in wrong.items():
        evidence = [
            CaseRecords(case, records[case.name], case.name in names)
            for case in cases
            if case.dtype == dtype and not is_user_case(case)
        ]
        if any(each.wrong for each in evidence):
            diagnoses[guard, dtype, output] = Diagnosis(EXPLANATIONS[guard](output, evidence), 0)
    return diagnoses


def make_findings(
    symptoms: Sequence[Symptom],
    grades: Sequence[Grade],
    spec: SubjectSpec,
    not_run: int,
    diagnoses: Mapping[tuple[str, str, str], Diagnosis],
) -> tuple[Finding, ...]:
    """Return one finding for each check, type and output, with the simplest example.

    `not_run` is the number of cases that were skipped.
    """
    groups: dict[tuple[str, str, str], list[Symptom]] = defaultdict(list)
    for symptom in symptoms:
        groups[symptom.guard, *symptom.type_and_output].append(symptom)
    slopes = {(each.dtype, each.output): each.slope for each in grades}
    findings = []
    for (guard, dtype, output), group in groups.items():
        shown = min(group, key=_example_order)
        text = shown.text
        slope = slopes.get((dtype, output))
        if guard == "growth" and slope is not None and shown.severity < UNEXPLAINED:
            kappa = shown.case.operation.condition
            text += f"; the error grows with kappa = {kappa}, slope {slope:.1f}"
        if guard == "raised" and not_run:
            text += f"; {counted(not_run, 'case')} skipped after that"
        verdict = GUARDS.get(guard, ACCURACY)
        diagnosed_as = ACCURACY if verdict == ACCURACY else guard
        diagnosis = diagnoses.get((diagnosed_as, dtype, output), UNKNOWN)
        findings.append(
            Finding(
                guard,
                verdict,
                dtype,
                output,
                shown.case.name,
                shown.case.why,
                text,
                shown.case.sources,
                len({each.case.name for each in group}) - 1,
                reproducer(shown, spec),
                diagnosis.cause,
                diagnosis.tried,
                tuple(sorted({each.case.family for each in group})),
            )
        )
    order = [*GUARDS, "rounding"]
    return tuple(sorted(findings, key=lambda each: order.index(each.guard)))


def _example_order(symptom: Symptom) -> tuple[float, bool, float, int]:
    """Sort key that puts the best example of a symptom first: the worst, then the smallest."""
    grows = symptom.guard == "growth"
    return (
        -symptom.severity,
        symptom.record.call.kind != PLAIN or (grows and symptom.case.kind == "ordinary"),
        -symptom.natural if grows else 0.0,
        int(np.prod(symptom.case.shape)),
    )
