"""Grade a subject: from the records of all cases to a report.

`grade` runs the checks on every case, grades each output in each type, diagnoses what failed, and
turns the symptoms into findings.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from truenorm.tools.text import counted
from truenorm.verify.cases.families import LARGE_VALUES
from truenorm.verify.diagnosis import conduct
from truenorm.verify.diagnosis.accuracy import (
    UNKNOWN,
    Diagnosis,
    Evidence,
    diagnose,
    without_match,
)
from truenorm.verify.diagnosis.conduct import CaseRecords, Explain, depends_on_calls
from truenorm.verify.diagnosis.patterns import (
    describe,
    describe_growth,
    describe_overflow,
    describe_stale,
    describe_sums,
)
from truenorm.verify.grading.advice import ADVICE, advice
from truenorm.verify.grading.checks import (
    GUARDS,
    UNEXPLAINED,
    MeasuredResult,
    Symptom,
    biased_symptoms,
    check_case,
    explain_bias,
    relax_sums,
)
from truenorm.verify.grading.recipes import (
    backward_evidence,
    diagnose_recipes,
    floor_symptoms,
    identify_backward,
    identify_forward,
    recipe_evidence,
    recipe_symptoms,
    way_evidence,
)
from truenorm.verify.grading.report import (
    ACCURACY,
    BATCH,
    BATCH_INVARIANT,
    GRADES,
    VERDICTS,
    BeyondDomain,
    CaseResult,
    Finding,
    Grade,
    Report,
)
from truenorm.verify.grading.reproducer import reproducer
from truenorm.verify.grading.user_cases import MeasuredRecord, check_user_case
from truenorm.verify.norms.enclosures import largest_kappa
from truenorm.verify.operation import (
    EVERYWHERE,
    MODEL_INPUT,
    Case,
    Domain,
    Hypothesis,
    Quantization,
    Results,
)
from truenorm.verify.oracle import expected, output_types
from truenorm.verify.running.records import (
    AGAIN,
    ALONE,
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    INTERLEAVED,
    LARGE,
    LARGE_FORWARD,
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
VERDICT_OF_CALL = {TWICE: "saved kept", LARGE: "large calls", LARGE_FORWARD: "large calls"}
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
    strict: bool = True,
    causes: bool = True,
    batch: str = "require",
) -> Report:
    """Grade the results of a subject.

    The `records` of its calls may have any order. `outputs` are by default all of the operation.
    `guards` are the checks to make; tests of the judge leave some out. `spec` says where the
    subject is defined, for the reproducers. Cases outside `domain` do not count for the grades.
    Unless `strict`, a sum over n rows may have log2(n) times the error of a stable result.
    Without `causes`, which may take seconds, findings have no diagnosis. If `batch` is "warn",
    results that depend on the batch are a warning.
    """
    if batch not in BATCH:
        raise ValueError(f"batch must be one of {', '.join(BATCH)}; got {batch!r}")
    if require not in GRADES:
        raise ValueError(f"require must be one of {', '.join(GRADES)}; got {require!r}")
    operation = cases[0].operation
    within, beyond = split_by_domain(cases, domain)
    outputs = outputs or [each.name for each in operation.outputs]
    by_case: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_case[record.case].append(record)
    finite = "finite" in guards
    every_symptom, every_measured = _check_all(
        cases, by_case, outputs, finite=finite, strict=strict
    )
    names = {case.name for case in within}
    symptoms = [each for each in every_symptom if each.case.name in names]
    measured = [each for each in every_measured if each.case.name in names]
    symptoms = [each for each in symptoms if each.guard in (*guards, *PRIMARY)]
    failing_verdicts = {GUARDS[each.guard] for each in symptoms}
    symptoms = [each for each in drop_consequences(symptoms) if each.guard in guards]
    symptoms, notes = drop_unclaimed(symptoms, _claims(within))
    every_result = [case_result(each) for each in every_measured]
    results = [each for each in every_result if each.case in names]
    run = [case for case in within if by_case[case.name]]
    misshapen = {
        each.type_and_output: each.case.name for each in symptoms if each.guard == "shape"
    }
    grades = grade_outputs(run, results, every_result, outputs, guards, misshapen)
    below = {(each.dtype, each.output) for each in grades if not each.reaches(require)}
    symptoms = [
        each
        for each in symptoms
        if GUARDS[each.guard] != ACCURACY or each.type_and_output in below
    ]
    symptoms += _rounding_symptoms(measured, below - {each.type_and_output for each in symptoms})
    evidence = recipe_evidence(measured)
    wrong = {each.dtype for each in grades if (each.output, each.grade) == (outputs[0], "wrong")}
    ways = way_evidence(measured)
    recipes = tuple(
        identify_forward(each, explain=dtype not in wrong, ways=ways.get(dtype))
        for dtype, each in evidence.items()
    )
    backward_recipes = tuple(map(identify_backward, backward_evidence(measured).values()))
    quantization = quantizations(measured)
    if "biased" in guards:
        accurate = [one for one in measured if one.type_and_output not in below]
        symptoms += biased_symptoms(accurate)
    if "floor" in guards:
        accurate_scales = [each for each in quantization if (each.dtype, "scale") not in below]
        symptoms += floor_symptoms(accurate_scales, measured)
    if recipe and "recipe" in guards:
        symptoms += recipe_symptoms(recipes, evidence, recipe)
    not_run = len(within) - len(run)
    spec = spec._replace(recipe=recipe)
    diagnoses: Diagnoses = {}
    if causes:
        of_conduct = diagnose_conduct(symptoms, run, by_case)
        diagnoses = {
            **diagnose_accuracy(symptoms, every_measured, of_conduct),
            **of_conduct,
            **diagnose_recipes(symptoms, recipes),
            **_diagnose_bias(symptoms, measured),
        }
        diagnoses |= _diagnose_by_state(symptoms, diagnoses)
    findings = make_findings(symptoms, grades, spec, not_run, diagnoses)
    if batch == "warn":
        findings = tuple(
            replace(each, warning=each.verdict == BATCH_INVARIANT) for each in findings
        )
    run_records = [each for case in run for each in by_case[case.name]]
    kinds = {each.kind for each in results}
    reasons = _reasons_not_judged(run, run_records, kinds, in_process=spec.callable)
    reasons |= dict.fromkeys(failing_verdicts & reasons.keys(), "a finding explains what it shows")
    verdicts = {name: "not judged" if reason else "pass" for name, reason in reasons.items()}
    failed = {each.verdict: "warn" if each.warning else "fail" for each in findings}
    verdicts |= {name: outcome for name, outcome in failed.items() if name in verdicts}
    notes = {name: reasons[name] for name in reasons if verdicts[name] == "not judged"} | notes
    notes |= {VERDICT_OF_CALL[each.call.kind]: each.left_out for each in records if each.left_out}
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
        quantization=quantization,
        notes=notes,
        domain=domain,
        left_out=len(beyond),
        beyond=check_beyond(
            [each for each in every_symptom if each.case.name not in names],
            [each for each in every_measured if each.case.name not in names],
            {(each.dtype, each.output): each.grade for each in grades},
            require,
            domain,
        ),
        results_beyond=tuple(each for each in every_result if each.case not in names),
        strict=strict,
        not_run=not_run,
        recipe=recipe,
        batch=batch,
        operation=operation,
    )


def quantizations(measured: Sequence[MeasuredResult]) -> tuple[Quantization, ...]:
    """Return the summary of codes and scales in each type, if there are any."""
    runs: dict[str, list[tuple[Case, Results]]] = defaultdict(list)
    for one in measured:
        if one.output == one.case.operation.outputs[0].name and not is_user_case(one.case):
            runs[one.case.dtype].append((one.case, one.record.results))
    every = (each[0][0].operation.knowledge.quantization(each) for each in runs.values())
    return tuple(each for each in every if each is not None)


def _check_all(
    cases: Iterable[Case],
    by_case: Mapping[str, Sequence[Record]],
    outputs: Collection[str],
    *,
    finite: bool = True,
    strict: bool = True,
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
    return (symptoms, measured) if strict else relax_sums(symptoms, measured)


def split_by_domain(cases: Sequence[Case], domain: Domain) -> tuple[list[Case], list[Case]]:
    """Return the cases within a domain, and those outside it."""
    within = [case for case in cases if _is_in_domain(case, domain)]
    return within, [case for case in cases if case not in within]


def _is_in_domain(case: Case, domain: Domain) -> bool:
    """Return True if every row of a case is in a domain; non-finite values have no size.

    The rows of a user are what a model feeds the subject, unless it declares another domain.
    """
    if domain.is_all or (domain == MODEL_INPUT and is_user_case(case)):
        return True
    return _largest_element(case) <= domain.largest and _kappa(case) <= domain.kappa


def _largest_element(case: Case) -> float:
    sizes = [
        np.abs(case.rows[name].astype(np.float64)) for name in case.operation.inputs_of("data")
    ]
    return max(float(each[np.isfinite(each)].max(initial=0.0)) for each in sizes)


def _kappa(case: Case) -> float:
    if is_user_case(case):
        return largest_kappa(case)
    return 0.0 if case.compared else float(expected(case).scales.kappa.max(initial=0.0))


def case_result(one: MeasuredResult) -> CaseResult:
    """Return the entry of a measured result in the report."""
    kappa = one.record.kappa if isinstance(one.record, MeasuredRecord) else _kappa(one.case)
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
    guards: Collection[str],
    misshapen: Mapping[tuple[str, str], str],
) -> tuple[Grade, ...]:
    """Grade each output in each type over all cases.

    `every_result` has also those beyond the domain: large kappa show best how errors grow.
    An output that is `misshapen` in some case is wrong, whatever it is in other cases.
    """
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
                grade_output(here, guards),
                max((each.ulp for each in here), default=math.inf),
                max((each.natural for each in here), default=math.inf),
                worst.case if worst else misshapen.get((dtype, output), ""),
                kappa_slope(everywhere),
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


def _reasons_not_judged(
    cases: Sequence[Case], records: Sequence[Record], kinds: Collection[str], *, in_process: bool
) -> dict[str, str]:
    """Return, by verdict, why it is not judged; an empty text if the records cover it.

    `kinds` are those of cases with a measured result. A call that failed shows nothing. A command
    is a new process each time and has no state.
    """
    done = [record for record in records if not record.failure]
    calls = {record.call.kind for record in done if record.results}
    gradients = {name for case in cases for name in case.operation.outputs_of(backward=True)}
    column_sums = {
        name for case in cases for name in gradients if not case.operation.is_rows(name)
    }
    backward, sums = (
        {record.call.kind for record in done if names & record.results.keys()}
        for names in (gradients, column_sums)
    )
    not_run = "no call for it returned"
    no_backward = not_run if backward else "there is no backward pass"
    no_sums = not_run if sums else "there is no gradient of a parameter"
    stateless = no_backward if in_process else "each call of a command is a new process"
    reasons = dict.fromkeys(VERDICTS, "" if done else not_run) | {
        "special values": "" if "special" in kinds else "no result for NaN or infinity is known",
        "subnormals kept": "" if "subnormal" in kinds else "no result for subnormals is known",
        "repeatable": "" if AGAIN in calls else not_run,
        "sums repeatable": "" if AGAIN in sums else no_sums,
        "batch-invariant": "" if ROWS in calls else not_run,
        "idle rows": no_sums if sums.isdisjoint(IDLE_ROWS) else "",
        "large calls": "" if LARGE in calls else not_run,
        "results kept": "" if in_process and LATER in calls else stateless,
        "own state": "" if in_process and INTERLEAVED in backward else stateless,
        "saved kept": "" if in_process and TWICE in backward else stateless,
    }
    if backward.isdisjoint(GRADIENT_LAYOUTS):
        claim = "it is judged with also=['layouts-of-gradients']"
        reasons["layouts of gradients"] = claim if backward else no_backward
    return reasons


def check_beyond(
    symptoms: Sequence[Symptom],
    measured: Sequence[MeasuredResult],
    within: Mapping[tuple[str, str], str],
    require: str,
    domain: Domain,
) -> tuple[BeyondDomain, ...]:
    """Return what fails outside the domain: by type, grade, and the limit that is exceeded.

    `within` has the grades in the domain. An output that is no worse beyond is left out.
    """
    groups: dict[tuple[str, str], list[MeasuredResult]] = defaultdict(list)
    for one in measured:
        limit = "kappa" if _kappa(one.case) > domain.kappa else "|x|"
        if GRADES.index(_grade_of([one])) < GRADES.index(require):
            groups[one.case.dtype, limit].append(one)
    beyond: dict[tuple[str, str, str], list[MeasuredResult]] = defaultdict(list)
    for (dtype, limit), group in groups.items():
        for output in dict.fromkeys(one.output for one in group):
            failing = [one for one in group if one.output == output]
            grade = _grade_of(failing)
            if GRADES.index(grade) < GRADES.index(within.get((dtype, output), "correct")):
                beyond[dtype, limit, grade] += failing
    entries = []
    for (dtype, limit, grade), failing in beyond.items():
        size = _kappa if limit == "kappa" else _largest_element
        # A case that is only conditional does not say from where on the output is unstable.
        worst = [one for one in failing if _grade_of([one]) == grade] or failing
        entries.append(
            BeyondDomain(
                dtype,
                tuple(dict.fromkeys(one.output for one in failing)),
                grade,
                limit,
                min(size(one.case) for one in worst),
                _values_of(worst, zeros=limit == "|x|"),
                len({one.case.name for one in failing}),
            )
        )
    return (*entries, *_checks_beyond(symptoms))


def _checks_beyond(symptoms: Sequence[Symptom]) -> Iterator[BeyondDomain]:
    """Yield the checks other than accuracy that fail outside the domain, by type."""
    groups: dict[tuple[str, str], list[Symptom]] = defaultdict(list)
    for each in drop_unclaimed(drop_consequences(symptoms), ())[0]:
        if GUARDS[each.guard] != ACCURACY:
            groups[each.case.dtype, GUARDS[each.guard]].append(each)
    for (dtype, verdict), group in groups.items():
        outputs = tuple(dict.fromkeys(each.output for each in group if each.output))
        count = len({each.case.name for each in group})
        yield BeyondDomain(dtype, outputs, verdict, "", 0.0, group[0].text, count)


def _grade_of(measured: Sequence[MeasuredResult]) -> str:
    """Return the grade of results of one output in one type."""
    return grade_output(list(map(case_result, measured)), tuple(GUARDS))


def _values_of(measured: Iterable[MeasuredResult], *, zeros: bool) -> str:
    """Describe the worst elements if they are NaN or infinite, or also if they are zero."""
    kinds = set()
    for one in measured:
        if isinstance(one.record, MeasuredRecord):
            value = one.record.measured[one.output].got
        else:
            value = float(np.real(one.result[one.error.at]))
        if (zeros and value == 0) or not math.isfinite(value):
            kinds.add("zeros" if value == 0 else "NaN" if math.isnan(value) else "infinity")
    return " or ".join(sorted(kinds))


IDLE_CLAIM = "idle-rows"
"""The extension by which a subject claims that rows of zero gradient change no sum."""
ON_SPECIAL_ROWS = ("finite", "growth", "special", "subnormal", "position")
"""Checks of rows that a wrong formula also fails."""
PRIMARY = ("repeat", "sums", "history", "position", "batch")
"""Checks whose symptoms have consequences in other checks, the simplest first."""
CONSEQUENCES = {
    "history": PRIMARY[:2],
    **dict.fromkeys(("position", "stale", "overwritten", "spent", "idle", "layout"), PRIMARY[:3]),
    "batch": PRIMARY[:4],
    "padding": PRIMARY,
}
"""By check: the checks whose symptoms, of the same output, explain its own."""


def drop_consequences(symptoms: Sequence[Symptom]) -> list[Symptom]:
    """Drop symptoms that follow from simpler ones.

    If a repeated call has different bits, so has any other call; if a row has different bits at
    another position, so it has in another batch. If an input is overwritten, the next call with
    it differs. A result that a thread overwrites is wrong if it takes long to copy, as in a large
    call. An output that is wrong on ordinary input is wrong on all others. One that is inaccurate
    is so on special and on subnormal input, too. A result of a wrong shape has no rows to compare.
    """
    places = defaultdict(set)
    for each in symptoms:
        places[each.guard].add(each.type_and_output)
    misshapen = {
        (each.case.name, each.output)
        for each in symptoms
        if each.guard == "shape" and each.record.call.kind == PLAIN
    }

    def is_consequence(each: Symptom) -> bool:
        place = each.type_and_output
        if GUARDS[each.guard] == "batch-invariant" and (each.case.name, each.output) in misshapen:
            return True
        if each.guard in CONSEQUENCES:
            overwritten = each.guard == "spent" and (place[0], "") in places["inputs"]
            return overwritten or any(place in places[guard] for guard in CONSEQUENCES[each.guard])
        if each.guard == "large" and place in places["overwritten"]:
            return True
        if not each.natural or each.guard not in ("growth", "special", "subnormal", "large"):
            return False
        plain_error = each.guard in ("special", "subnormal") and math.isfinite(each.natural)
        return place in places["ordinary"] or (plain_error and place in places["growth"])

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
"""By check, type and output."""
EXPLANATIONS: dict[str, Explain] = {
    "raised": conduct.explain_raised,
    "result": conduct.explain_raised,
    "shape": conduct.explain_shape,
    "type": conduct.explain_type,
    "special": conduct.explain_special,
    "subnormal": conduct.explain_subnormal,
    "repeat": conduct.explain_repeat,
    "sums": conduct.explain_repeat,
    "history": conduct.explain_history,
    "position": conduct.explain_position,
    "batch": conduct.explain_batch,
    "large": conduct.explain_large,
    "inputs": conduct.explain_inputs,
    "overwritten": conduct.explain_overwritten,
    "stale": conduct.explain_stale,
    "spent": conduct.explain_spent,
}


WELL_CONDITIONED = 4.0
"""The largest kappa of cases that a second bug, such as a one-pass variance, hardly changes."""


def diagnose_accuracy(
    symptoms: Collection[Symptom],
    measured: Collection[MeasuredResult],
    of_conduct: Mapping[tuple[str, str, str], Diagnosis],
) -> Diagnoses:
    """Diagnose the inaccurate outputs of each type.

    If an output is wrong on ordinary input, use only those cases, where no large kappa blurs the
    result, and cases in which eps dominates, where a diagnosis about eps must hold, too. If none
    explains all of them, use only well-conditioned ones: the output may have two bugs. If the
    conduct shows that the output depends on earlier calls, that is the cause unless a hypothesis
    matches. It is the cause in any case if the error vanishes in a process of its own.
    """
    kept = {
        (dtype, output): diagnosis
        for (_, dtype, output), diagnosis in of_conduct.items()
        if depends_on_calls(diagnosis.cause)
    }
    right_alone = {each.type_and_output for each in symptoms if each.record.call.kind == ALONE}
    diagnoses: Diagnoses = {}
    places: dict[tuple[str, str], list[Symptom]] = defaultdict(list)
    for each in symptoms:
        if GUARDS.get(each.guard) == ACCURACY:
            places[each.type_and_output].append(each)
    for (dtype, output), failing in places.items():
        of_output = [
            one
            for one in measured
            if one.type_and_output == (dtype, output)
            and not is_user_case(one.case)  # its results are not kept
        ]
        every = ("ordinary", "growth", "finite", "rounding")
        operation, runs = (
            failing[0].case.operation,
            [(one.case, one.record.results) for one in of_output],
        )
        if (own := operation.knowledge.find_cause(output, runs)) is not None:
            diagnoses |= {(guard, dtype, output): Diagnosis(*own) for guard in every}
            continue
        on_ordinary = [each for each in failing if each.case.kind == "ordinary"]
        ordinary = any(each.severity == UNEXPLAINED for each in on_ordinary)
        kinds = ("ordinary",) if ordinary else ("ordinary", "sweep", "hard")
        wrong_from = UNEXPLAINED if ordinary else 1
        evidence = [
            Evidence(one.case, output, one.result, one.error.needs < wrong_from)
            for one in of_output
            if one.case.kind in kinds or (one.case.kind == "hard" and one.case.eps >= 1)
        ]
        if not evidence:
            continue
        hypotheses = evidence[0].case.operation.knowledge.hypotheses(output)
        if dtype == "float64" and not ordinary:
            # Steps that are right have the same rounding errors in every hypothesis: one that
            # changes nothing in these cases would explain them.
            hypotheses = {}
        diagnosis = diagnose(evidence, hypotheses, by_size=ordinary)
        if ordinary and not diagnosis.cause:
            easy = [each for each in evidence if _kappa(each.case) <= WELL_CONDITIONED]
            diagnosis = diagnose(easy, hypotheses, by_size=False) if easy else diagnosis
        explains_all = bool(diagnosis.cause) and not ordinary
        state = kept.get((dtype, output))
        if state and ((dtype, output) in right_alone or not diagnosis.cause):
            diagnoses |= {(guard, dtype, output): state for guard in every}
            continue
        if not diagnosis.cause:
            names = {each.case.name for each in failing}
            cause = _described(evidence, hypotheses, names if not ordinary else None)
            diagnosis = diagnosis._replace(cause=cause)
        not_finite = any(each.guard == "finite" for each in on_ordinary)
        explained = {"ordinary"} if ordinary else {"growth", "rounding"}
        if not_finite or explains_all:
            explained.add("finite")
        elif not ordinary and evidence[0].case.operation.is_rows(output):
            cause = describe_overflow(evidence, diagnosis.cause)
            diagnoses["finite", dtype, output] = Diagnosis(cause, diagnosis.tried)
        diagnoses |= {(guard, dtype, output): diagnosis for guard in explained}
    return diagnoses


def _described(
    evidence: Sequence[Evidence],
    hypotheses: Mapping[str, Hypothesis],
    growing: Collection[str] | None,
) -> str:
    """Describe the errors of a result that no hypothesis explains.

    `growing` are the names of the failing cases if ordinary input is right.
    """
    stale = describe_stale(evidence)
    if stale or growing is not None:
        return stale or describe_growth(evidence, growing or ()) or describe_sums(evidence)
    return describe([each for each in evidence if each.case.kind == "ordinary"], hypotheses)


def _diagnose_bias(symptoms: Iterable[Symptom], measured: Sequence[MeasuredResult]) -> Diagnoses:
    """Diagnose results that are not rounded to nearest."""
    return {
        (each.guard, *each.type_and_output): Diagnosis(explain_bias(each.output, measured), 0)
        for each in symptoms
        if each.guard == "biased"
    }


BY_STATE = ("special", "subnormal", "large", *CONSEQUENCES)
"""Checks other than accuracy that an output may fail because it depends on earlier calls."""


def _diagnose_by_state(symptoms: Collection[Symptom], diagnoses: Diagnoses) -> Diagnoses:
    """Return the diagnoses of checks that fail since an output depends on earlier calls.

    A cause of inaccuracy that was found from the results stays.
    """
    state = {
        (dtype, output): diagnosis
        for (_, dtype, output), diagnosis in diagnoses.items()
        if depends_on_calls(diagnosis.cause)
    }
    found = {key for key, diagnosis in diagnoses.items() if diagnosis.cause}
    by_state: Diagnoses = {}
    for each in symptoms:
        key = (each.guard, *each.type_and_output)
        unexplained = GUARDS.get(each.guard) == ACCURACY and key not in found
        if each.type_and_output in state and (each.guard in BY_STATE or unexplained):
            by_state[key] = state[each.type_and_output]
    return by_state


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
            diagnoses[guard, dtype, output] = _diagnose_calls(guard, output, evidence)
    return diagnoses


OF_CALLS = (
    *("raised", "result", "repeat", "history", "position", "batch", "large", "inputs"),
    "overwritten",
)
"""Checks whose explanations compare calls, or sizes; none compares codes with exact answers."""


def _diagnose_calls(guard: str, output: str, evidence: Sequence[CaseRecords]) -> Diagnosis:
    """Explain a symptom of conduct; an operation may explain its own results."""
    if guard not in OF_CALLS:
        runs = [(each.case, record.results) for each in evidence for record in each.of_kind(PLAIN)]
        own = evidence[0].case.operation.knowledge.find_cause(
            output, runs, special=guard == "special"
        )
        if own is not None:
            return Diagnosis(*own) if guard == "special" else UNKNOWN
    return Diagnosis(EXPLANATIONS[guard](output, evidence), 0)


def make_findings(
    symptoms: Sequence[Symptom],
    grades: Sequence[Grade],
    spec: SubjectSpec,
    not_run: int,
    diagnoses: Mapping[tuple[str, str, str], Diagnosis],
) -> tuple[Finding, ...]:
    """Return one finding for each check, type and output, with the simplest example.

    `not_run` is the number of cases that were skipped. A hypothesis is the cause if it has the
    errors of the example.
    """
    groups: dict[tuple[str, str, str], list[Symptom]] = defaultdict(list)
    for symptom in symptoms:
        groups[symptom.guard, *symptom.type_and_output].append(symptom)
    slopes = {(each.dtype, each.output): each.slope for each in grades}
    findings = []
    for (guard, dtype, output), group in groups.items():
        diagnosis = diagnoses.get((guard, dtype, output), UNKNOWN)
        if diagnosis.cases:
            explained = [each for each in group if each.case.name in diagnosis.cases]
            group, diagnosis = explained or group, diagnosis if explained else UNKNOWN
        shown = min(group, key=_example_order)
        text = shown.text
        slope = slopes.get((dtype, output))
        if guard == "growth" and slope is not None and shown.severity < UNEXPLAINED:
            kappa = shown.case.operation.condition
            text += f"; the error grows with kappa = {kappa}, slope {slope:.1f}"
        if guard == "raised" and not_run:
            text += f"; {counted(not_run, 'case')} skipped after that"
        verdict = GUARDS.get(guard, ACCURACY)
        of_state = depends_on_calls(diagnosis.cause)
        matters, to_try = ADVICE["history"] if of_state else advice(shown, slope, diagnosis.cause)
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
                len({each.case.name for each in groups[guard, dtype, output]}) - 1,
                reproducer(shown, spec, after_others=of_state),
                diagnosis.cause,
                diagnosis.tried,
                tuple(sorted({each.case.family for each in groups[guard, dtype, output]})),
                slope if verdict == ACCURACY else None,
                matters,
                to_try,
            )
        )
    forward = symptoms[0].case.operation.outputs_of(backward=False) if symptoms else []
    return order_findings(findings, forward)


def order_findings(findings: Sequence[Finding], forward: Collection[str]) -> tuple[Finding, ...]:
    """Put the simplest checks first, and findings that follow from another one after it.

    A finding follows from another one of accuracy if both have the same likely cause, and from one
    of any check if that cause is that results depend on earlier calls. Without a likely cause, a
    gradient may follow from a result of forward in the same type that fails on the same inputs, or
    whose error grows with the same power of kappa; and an error on special rows may follow from
    one of the same result that plain rows show.
    """
    order = [*GUARDS, "rounding"]
    ranked = sorted(findings, key=lambda each: order.index(each.guard))
    leaders: list[Finding] = []
    leader_of: dict[int, Finding] = {}
    for each in sorted(ranked, key=lambda each: each.output not in forward):
        leader = next((one for one in leaders if _explains(one, each, forward)), None)
        if leader is None:
            leaders.append(each)
        else:
            leader_of[id(each)] = leader
    leaders = [each for each in ranked if id(each) not in leader_of]
    places = {id(each): place for place, each in enumerate(leaders, 1)}
    followers = [
        replace(each, follows=places[id(leader_of[id(each)])])
        for each in ranked
        if id(each) in leader_of
    ]
    return (*leaders, *followers)


def _explains(one: Finding, other: Finding, forward: Collection[str]) -> bool:
    """Return True if a finding about accuracy or earlier calls explains another one."""
    if depends_on_calls(one.cause) and one.cause == other.cause:
        return True
    same_result = (one.dtype, one.output) == (other.dtype, other.output)
    if one.guard == "ordinary" and one.cause and same_result and not other.cause:
        return other.guard in ON_SPECIAL_ROWS
    if not one.verdict == other.verdict == ACCURACY:
        return False
    if other.cause:
        return without_match(one.cause) == without_match(other.cause)
    if one.output not in forward or other.output in forward or one.dtype != other.dtype:
        return False
    slopes = (one.slope or 0.0, other.slope or 0.0)
    grow_alike = min(slopes) > 0.5 and abs(slopes[0] - slopes[1]) < 0.5
    return grow_alike or set(other.families) <= set(one.families)


def _example_order(symptom: Symptom) -> tuple[float, bool, bool, float, int]:
    """Sort key that puts the best example of a symptom first: the worst, then the smallest.

    Large values are an example only if others show nothing: they are not plain random rows.
    """
    grows = symptom.guard == "growth"
    return (
        -symptom.severity,
        symptom.record.call.kind != PLAIN or (grows and symptom.case.kind == "ordinary"),
        symptom.case.family == LARGE_VALUES,
        -symptom.natural if grows else 0.0,
        int(np.prod(symptom.case.shape)),
    )
