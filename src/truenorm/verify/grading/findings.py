"""From symptoms to findings: what follows from another is left out, what is alike is one."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from truenorm.verify.causes.naming import UNKNOWN, Cause
from truenorm.verify.grading.guards import GUARDS, Judged, Symptom
from truenorm.verify.grading.measuring import UNEXPLAINED
from truenorm.verify.grading.report import ACCURACY, Finding, Grade
from truenorm.verify.grading.reproducer import Origin, reproducer
from truenorm.verify.runs.calls import PLAIN

__all__ = ["PLAINER", "claimed_alone", "explained_once", "findings_of", "unrounded"]

CLAIM = "idle-rows"
"""The extension by which a subject claims that such rows change no sum."""
PLAINER = ("repeat", "sums", "position", "batch")
"""Guards from whose symptoms others may follow, the plainest first."""
FOLLOWS_FROM = {
    **dict.fromkeys(("position", "stale", "overwritten", "spent", "idle", "layout"), PLAINER[:2]),
    "batch": PLAINER[:3],
    "padding": PLAINER,
}
"""By guard: those whose symptoms explain its own, of the same output."""


def explained_once(symptoms: Sequence[Symptom]) -> list[Symptom]:
    """Leave out what follows from something plainer.

    Where the same call has other bits each time, so has another call, and where a row has others
    at another place, so it has in another batch; where an input is damaged, the next call with it
    differs; and what is wrong on ordinary input is wrong on every other.
    """
    found = defaultdict(set)
    for each in symptoms:
        found[each.guard].add((each.case.dtype, each.output))

    def follows(each: Symptom) -> bool:
        place = (each.case.dtype, each.output)
        if each.guard in FOLLOWS_FROM:
            damaged = each.guard == "spent" and (each.case.dtype, "") in found["inputs"]
            return damaged or any(place in found[guard] for guard in FOLLOWS_FROM[each.guard])
        off = each.natural > 0 and each.guard in ("growth", "special", "subnormal", "large")
        return off and place in found["ordinary"]

    return [each for each in symptoms if not follows(each)]


def claimed_alone(
    symptoms: Collection[Symptom], claims: Collection[str]
) -> tuple[list[Symptom], dict[str, str]]:
    """Leave out what is not among the claims, and return what is to be said of it by verdict.

    Sums that are cut by the number of rows are honest: only who claims otherwise is blamed.
    """
    idle = [each for each in symptoms if each.guard == "idle"]
    if not idle or CLAIM in claims:
        return list(symptoms), {}
    changed = " and ".join(dict.fromkeys(each.output for each in idle))
    said = f"rows whose gradients are zero change {changed}: a finding where also=[{CLAIM!r}]"
    return [each for each in symptoms if each.guard != "idle"], {GUARDS["idle"]: said}


def unrounded(
    judged: Iterable[Judged],
    below: Collection[tuple[str, str]],
    explained: Collection[tuple[str, str]],
) -> list[Symptom]:
    """Where more than `stable` is required, say which result is not rounded well enough."""
    found = []
    for one in judged:
        place = (one.case.dtype, one.output)
        if place in below and place not in explained and not one.error.correct:
            text = f"{one.output} is off by {one.error.ulp:.3g} ulp"
            found.append(
                Symptom("rounding", one.case, one.record, one.output, text, (), one.error.ulp)
            )
    return found


def _plainness(symptom: Symptom) -> tuple[float, bool, float, int]:
    """Return what puts the plainest example of a symptom first: the worst, or the smallest."""
    grows = symptom.guard == "growth"
    return (
        -symptom.severity,
        symptom.record.call.kind != PLAIN or (grows and symptom.case.kind == "ordinary"),
        -symptom.natural if grows else 0.0,
        int(np.prod(symptom.case.shape)),
    )


def findings_of(
    symptoms: Sequence[Symptom],
    grades: Sequence[Grade],
    origin: Origin,
    not_run: int,
    causes: Mapping[tuple[str, str, str], Cause],
) -> tuple[Finding, ...]:
    """Return one finding for each kind of symptom, with the case that shows it most simply.

    `not_run` is the number of cases that were given up; `causes` are by guard, type and output,
    with ``accuracy`` for all guards of it.
    """
    groups: dict[tuple[str, str, str], list[Symptom]] = defaultdict(list)
    for symptom in symptoms:
        groups[symptom.guard, symptom.case.dtype, symptom.output].append(symptom)
    slopes = {(each.dtype, each.output): each.slope for each in grades}
    found = []
    for (guard, dtype, output), group in groups.items():
        shown = min(group, key=_plainness)
        text = shown.text
        rate = slopes.get((dtype, output))
        if guard == "growth" and rate is not None and shown.severity < UNEXPLAINED:
            condition = shown.case.operation.condition
            text += f"; the error grows with kappa = {condition}, slope {rate:.1f}"
        if guard == "raised" and not_run:
            text += f"; after that it was given up, {not_run} cases were not run"
        verdict = GUARDS.get(guard, ACCURACY)
        decided_by = ACCURACY if verdict == ACCURACY else guard
        cause = causes.get((decided_by, dtype, output), UNKNOWN)
        found.append(
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
                reproducer(shown, origin),
                cause.words,
                cause.tried,
                tuple(sorted({each.case.family for each in group})),
            )
        )
    order = [*GUARDS, "rounding"]
    return tuple(sorted(found, key=lambda each: order.index(each.guard)))
