"""Turn symptoms into findings: one for each check, type and output, in order."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from truenorm.tools.text import counted
from truenorm.verify.calls import PLAIN
from truenorm.verify.causes import depends_on_calls
from truenorm.verify.diagnosis.accuracy import EXPLAINED, UNKNOWN, Diagnosis
from truenorm.verify.grading.advice import ADVICE, advice
from truenorm.verify.grading.report import ACCURACY, BATCH_INVARIANT, Finding, Grade
from truenorm.verify.grading.reproducer import reproducer
from truenorm.verify.grading.symptoms import GUARDS, UNEXPLAINED, Symptom
from truenorm.verify.inputs.families import LARGE_VALUES
from truenorm.verify.subject import SubjectSpec

ON_SPECIAL_ROWS = ("finite", "growth", "special", "subnormal", "position")
"""Checks of rows that a wrong formula fails, too."""


def make_findings(
    symptoms: Sequence[Symptom],
    grades: Sequence[Grade],
    spec: SubjectSpec,
    not_run: int,
    diagnoses: Mapping[tuple[str, str, str], Diagnosis],
    batch: str = "require",
) -> tuple[Finding, ...]:
    """Return one finding for each check, type and output, with the simplest example.

    `not_run` is the number of cases that were skipped. A cause is named if it explains the error
    of the example. If `batch` is "warn", a dependence on the batch is a warning.
    """
    groups: dict[tuple[str, str, str], list[Symptom]] = defaultdict(list)
    for symptom in symptoms:
        groups[symptom.guard, *symptom.type_and_output].append(symptom)
    slopes = {(each.dtype, each.output): each.slope for each in grades}
    findings = []
    for (guard, dtype, output), group in groups.items():
        diagnosis = diagnoses.get((guard, dtype, output), UNKNOWN)
        if diagnosis.shares:
            group, diagnosis = _explained(group, diagnosis)
        shown = min(group, key=_example_order)
        text = shown.text
        slope = slopes.get((dtype, output))
        if guard == "growth" and slope is not None and shown.severity < UNEXPLAINED:
            kappa = shown.case.operation.condition
            text += f"; the error grows with kappa = {kappa}, slope {slope:.1f}"
        if guard == "raised" and not_run:
            text += f"; {counted(not_run, 'case')} skipped after that"
        verdict = GUARDS.get(guard, ACCURACY)
        of_state = depends_on_calls(diagnosis.causes)
        named = bool(diagnosis.causes)
        matters, to_try = ADVICE["history"] if of_state else advice(shown, slope, named=named)
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
                diagnosis.words(shown.case.name),
                diagnosis.tried,
                tuple(sorted({each.case.family for each in groups[guard, dtype, output]})),
                slope if verdict == ACCURACY else None,
                matters,
                to_try,
                causes=diagnosis.causes,
                matched=bool(diagnosis.match),
                warning=batch == "warn" and verdict == BATCH_INVARIANT,
            )
        )
    forward = symptoms[0].case.operation.outputs_of(backward=False) if symptoms else []
    return order_findings(findings, forward)


def _explained(group: list[Symptom], diagnosis: Diagnosis) -> tuple[list[Symptom], Diagnosis]:
    """Return the symptoms that a cause explains best, in whole percent, if it explains any.

    Of a cause that explains no symptom of a group, nothing is said.
    """
    shares = {each.case.name: diagnosis.shares.get(each.case.name, 0.0) for each in group}
    most = max(shares.values())
    if most < EXPLAINED:
        return group, UNKNOWN
    best = [each for each in group if shares[each.case.name] >= math.floor(100 * most) / 100]
    return best, diagnosis


def order_findings(findings: Sequence[Finding], forward: Collection[str]) -> tuple[Finding, ...]:
    """Put the simplest checks first, and findings that follow from another finding last.

    Findings with the same likely cause follow from the first of them. Without a likely cause, a
    gradient may follow from a result of forward in the same type: both fail on the same inputs, or
    both errors grow with the same power of kappa. An error on special rows may follow from an
    error of the same result on plain rows.
    """
    order = [*GUARDS, "rounding"]
    ranked = sorted(findings, key=lambda each: order.index(each.guard))
    before: list[Finding] = []
    leader_of: dict[int, Finding] = {}
    for each in sorted(ranked, key=lambda each: each.output not in forward):
        leader = next((one for one in before if _explains(one, each, forward)), None)
        if leader is not None:
            leader_of[id(each)] = leader_of.get(id(leader), leader)
        before.append(each)
    leaders = [each for each in ranked if id(each) not in leader_of]
    places = {id(each): place for place, each in enumerate(leaders, 1)}
    followers = [
        replace(each, follows=places[id(leader_of[id(each)])])
        for each in ranked
        if id(each) in leader_of
    ]
    return (*leaders, *followers)


def _explains(one: Finding, other: Finding, forward: Collection[str]) -> bool:
    """Return True if a finding has the cause of another finding, or may be that cause."""
    if other.causes and one.causes == other.causes:
        return True
    same_result = (one.dtype, one.output) == (other.dtype, other.output)
    if one.guard == "ordinary" and one.causes and same_result and not other.causes:
        return other.guard in ON_SPECIAL_ROWS
    if other.causes or not one.verdict == other.verdict == ACCURACY:
        return False
    if one.output not in forward or other.output in forward or one.dtype != other.dtype:
        return False
    slopes = (one.slope or 0.0, other.slope or 0.0)
    grow_alike = min(slopes) > 0.5 and abs(slopes[0] - slopes[1]) < 0.5
    return grow_alike or set(other.families) <= set(one.families)


def _example_order(symptom: Symptom) -> tuple[float, bool, bool, float, int]:
    """Return a sort key that puts the best example of a symptom first: worst, then smallest.

    Cases of large values are not plain random rows, and come after other cases.
    """
    grows = symptom.guard == "growth"
    return (
        -symptom.severity,
        symptom.record.call.kind != PLAIN or (grows and symptom.case.kind == "ordinary"),
        symptom.case.family == LARGE_VALUES,
        -symptom.natural if grows else 0.0,
        int(np.prod(symptom.case.shape)),
    )
