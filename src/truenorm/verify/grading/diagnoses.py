"""Diagnose symptoms: choose the evidence of each, and find its likely cause.

The causes of inaccurate results come from hypotheses. The causes of other symptoms come from the
records of all calls.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from truenorm.verify.calls import ALONE, PLAIN
from truenorm.verify.causes import Cause, depends_on_calls
from truenorm.verify.diagnosis import behaviour, repeats
from truenorm.verify.diagnosis.accuracy import (
    UNKNOWN,
    Check,
    Diagnosis,
    described_by,
    diagnose,
    with_common_causes,
)
from truenorm.verify.diagnosis.behaviour import CaseRecords, Explain
from truenorm.verify.diagnosis.matches import Evidence
from truenorm.verify.diagnosis.patterns import (
    describe,
    describe_growth,
    describe_overflow,
    describe_stale,
)
from truenorm.verify.grading.consequences import CONSEQUENCES
from truenorm.verify.grading.output_grades import kappa_of
from truenorm.verify.grading.report import ACCURACY, Recipe
from truenorm.verify.grading.roundings import diagnose_recipes, explain_bias
from truenorm.verify.grading.symptoms import GUARDS, UNEXPLAINED, MeasuredResult, Symptom
from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.running.records import Record
from truenorm.verify.user_cases import is_user_case

Place = tuple[str, str]
"""A type and an output."""
Diagnoses = dict[Check, Diagnosis]
EXPLANATIONS: dict[str, Explain] = {
    "raised": behaviour.explain_raised,
    "result": behaviour.explain_raised,
    "shape": behaviour.explain_shape,
    "type": behaviour.explain_type,
    "special": behaviour.explain_special,
    "subnormal": behaviour.explain_subnormal,
    "repeat": repeats.explain_repeat,
    "sums": repeats.explain_repeat,
    "history": repeats.explain_history,
    "position": behaviour.explain_position,
    "batch": behaviour.explain_batch,
    "large": behaviour.explain_large,
    "inputs": behaviour.explain_inputs,
    "overwritten": behaviour.explain_overwritten,
    "stale": behaviour.explain_stale,
    "spent": behaviour.explain_spent,
}
OF_CALLS = (
    *("raised", "result", "shape", "repeat", "history", "position", "batch", "large", "inputs"),
    "overwritten",
)
"""Checks whose explanations compare calls or sizes, and no codes with exact answers."""
OF_ACCURACY = ("ordinary", "growth", "finite", "rounding")
"""Checks of accuracy, and of the rounding that a grade requires."""
BY_STATE = ("special", "subnormal", "large", *CONSEQUENCES)
"""Checks other than accuracy that an output may fail because it depends on earlier calls."""
WELL_CONDITIONED = 4.0
"""The largest kappa of cases that a second bug, such as a one-pass variance, hardly changes."""


def diagnose_all(
    symptoms: Collection[Symptom],
    measured: Sequence[MeasuredResult],
    cases: Collection[Case],
    records: Mapping[str, Sequence[Record]],
    recipes: Collection[Recipe],
) -> Diagnoses:
    """Return the likely cause of each symptom, where there is one.

    `measured` are the results of all cases. `cases` are the cases in the domain that were run, and
    `records` has the records of each case by its name.
    """
    inside = {case.name for case in cases}
    of_calls = diagnose_behaviour(symptoms, cases, records)
    diagnoses = {
        **diagnose_accuracy(symptoms, measured, of_calls, inside),
        **of_calls,
        **diagnose_recipes(symptoms, recipes),
        **_diagnose_bias(symptoms, [one for one in measured if one.case.name in inside]),
    }
    return diagnoses | _diagnose_by_state(symptoms, diagnoses)


def diagnose_accuracy(
    symptoms: Collection[Symptom],
    measured: Collection[MeasuredResult],
    of_calls: Diagnoses,
    inside: Collection[str],
) -> Diagnoses:
    """Diagnose the inaccurate outputs of each type; `inside` names the cases in the domain."""
    states = _states(of_calls)
    right_alone = {each.type_and_output for each in symptoms if each.record.call.kind == ALONE}
    places: dict[Place, list[Symptom]] = defaultdict(list)
    for each in symptoms:
        if GUARDS.get(each.guard) == ACCURACY:
            places[each.type_and_output].append(each)
    diagnoses: Diagnoses = {}
    for place, failing in places.items():
        # The results of user cases are not kept.
        results = [
            one for one in measured if one.type_and_output == place and not is_user_case(one.case)
        ]
        by_check = _diagnose_output(
            failing, results, states.get(place), inside, right_alone=place in right_alone
        )
        diagnoses |= {(guard, *place): diagnosis for guard, diagnosis in by_check.items()}
    return with_common_causes(diagnoses)


def _states(diagnoses: Diagnoses) -> dict[Place, Diagnosis]:
    """Return the diagnoses of outputs that depend on earlier calls."""
    return {
        (dtype, output): diagnosis
        for (_, dtype, output), diagnosis in diagnoses.items()
        if depends_on_calls(diagnosis.causes)
    }


def _diagnose_output(
    failing: Sequence[Symptom],
    results: Sequence[MeasuredResult],
    state: Diagnosis | None,
    inside: Collection[str],
    *,
    right_alone: bool,
) -> dict[str, Diagnosis]:
    """Return, by check, the diagnosis of one inaccurate output.

    `state` is the diagnosis of an output that depends on earlier calls. `state` is the cause
    unless a hypothesis matches, and always if the result is right in a process of its own.
    """
    output, knowledge = failing[0].output, failing[0].case.operation.knowledge
    runs = [(one.case, one.record.results) for one in results]
    if knowledge.codes is not None:
        return dict.fromkeys(OF_ACCURACY, Diagnosis(*knowledge.codes.find_cause(output, runs)))
    on_ordinary = [each for each in failing if each.case.kind == "ordinary"]
    ordinary = any(each.severity == UNEXPLAINED for each in on_ordinary)
    evidence = _evidence(results, ordinary=ordinary)
    if not evidence:
        return {}
    hypotheses = knowledge.hypotheses(output)
    # A cause of errors in the domain comes first: beyond it, kernels fail for other reasons, too.
    within = [each for each in evidence if each.correct or each.case.name in inside]
    matching = _search(within, hypotheses, ordinary=ordinary)
    if not matching.causes and len(within) < len(evidence):
        matching = _search(evidence, hypotheses, ordinary=ordinary)
    if state and (right_alone or not matching.causes):
        return dict.fromkeys(OF_ACCURACY, state)
    diagnosis = matching
    if not matching.causes:
        described = _described(evidence, hypotheses, ordinary=ordinary)
        diagnosis = described._replace(tried=matching.tried)
    if ordinary:
        not_finite = any(each.guard == "finite" for each in on_ordinary)
        return dict.fromkeys(["ordinary", *["finite"][:not_finite]], diagnosis)
    return dict.fromkeys(["growth", "rounding"], diagnosis) | _of_not_finite(
        evidence, diagnosis, explained=bool(matching.causes)
    )


def _evidence(results: Iterable[MeasuredResult], *, ordinary: bool) -> list[Evidence]:
    """Choose the results of an output to compare with hypotheses.

    If the output is wrong on `ordinary` input, choose ordinary cases, where no large kappa blurs
    the results, and cases in which eps dominates: a diagnosis about eps must hold there.
    """
    kinds = ("ordinary",) if ordinary else ("ordinary", "sweep", "hard")
    wrong_from = UNEXPLAINED if ordinary else 1
    return [
        Evidence(one.case, one.output, one.result, one.error.needs < wrong_from)
        for one in results
        if one.case.kind in kinds or (one.case.kind == "hard" and one.case.eps >= 1)
    ]


def _search(
    evidence: Sequence[Evidence], hypotheses: Mapping[Cause, Hypothesis], *, ordinary: bool
) -> Diagnosis:
    """Search for a hypothesis that explains an output.

    If no hypothesis explains all ordinary cases, compare only the well-conditioned cases: the
    output may have two bugs.
    """
    diagnosis = diagnose(evidence, hypotheses, by_size=ordinary)
    if ordinary and not diagnosis.causes:
        easy = [each for each in evidence if kappa_of(each.case) <= WELL_CONDITIONED]
        diagnosis = diagnose(easy, hypotheses, by_size=False) if easy else diagnosis
    return diagnosis


def _described(
    evidence: Sequence[Evidence], hypotheses: Mapping[Cause, Hypothesis], *, ordinary: bool
) -> Diagnosis:
    """Describe the errors of a result that no hypothesis explains."""
    if stale := describe_stale(evidence):
        return stale
    if not ordinary:
        return describe_growth(evidence)
    return describe([each for each in evidence if each.case.kind == "ordinary"], hypotheses)


def _of_not_finite(
    evidence: Sequence[Evidence], diagnosis: Diagnosis, *, explained: bool
) -> dict[str, Diagnosis]:
    """Return the diagnosis of elements that are not finite, where ordinary input is right."""
    if explained:
        return {"finite": diagnosis}
    if not evidence[0].case.operation.is_rows(evidence[0].output):
        return {}
    cause = describe_overflow(evidence, diagnosis.causes)
    return {"finite": described_by(cause, diagnosis.tried)}


def _diagnose_bias(symptoms: Iterable[Symptom], measured: Sequence[MeasuredResult]) -> Diagnoses:
    """Diagnose results that are not rounded to nearest."""
    return {
        (each.guard, *each.type_and_output): described_by(explain_bias(each.output, measured))
        for each in symptoms
        if each.guard == "biased"
    }


def _diagnose_by_state(symptoms: Collection[Symptom], diagnoses: Diagnoses) -> Diagnoses:
    """Return the diagnoses of checks that fail since an output depends on earlier calls.

    A cause of inaccuracy that was found from the results is kept.
    """
    states = _states(diagnoses)
    found = {key for key, diagnosis in diagnoses.items() if diagnosis.causes}
    by_state: Diagnoses = {}
    for each in symptoms:
        key = (each.guard, *each.type_and_output)
        unexplained = GUARDS.get(each.guard) == ACCURACY and key not in found
        if each.type_and_output in states and (each.guard in BY_STATE or unexplained):
            by_state[key] = states[each.type_and_output]
    return by_state


def diagnose_behaviour(
    symptoms: Collection[Symptom],
    cases: Collection[Case],
    records: Mapping[str, Sequence[Record]],
) -> Diagnoses:
    """Diagnose symptoms other than inaccuracy from the records of all cases of the type."""
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


def _diagnose_calls(guard: str, output: str, evidence: Sequence[CaseRecords]) -> Diagnosis:
    """Explain a symptom other than inaccuracy; for NaN, codes have separate causes."""
    codes = evidence[0].case.operation.knowledge.codes
    if codes is not None and guard == "special":
        runs = [(each.case, record.results) for each in evidence for record in each.of_kind(PLAIN)]
        return Diagnosis(*codes.find_cause(output, runs, special=True))
    if codes is not None and guard not in OF_CALLS:
        return UNKNOWN
    return described_by(EXPLANATIONS[guard](output, evidence))
