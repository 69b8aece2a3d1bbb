"""Drop symptoms that follow from simpler symptoms or concern properties that are not claimed."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from truenorm.verify.calls import PLAIN
from truenorm.verify.grading.symptoms import GUARDS, Symptom
from truenorm.verify.operation import Case

IDLE_CLAIM = "idle-rows"
"""The extension by which a subject claims that rows of zero gradient change no sum."""
PRIMARY = ("repeat", "sums", "history", "position", "batch")
"""Checks whose symptoms have consequences in other checks, the simplest first."""
CONSEQUENCES = {
    "history": PRIMARY[:2],
    **dict.fromkeys(("position", "stale", "overwritten", "spent", "idle", "layout"), PRIMARY[:3]),
    "batch": PRIMARY[:4],
    "padding": PRIMARY,
}
"""By check: the checks whose symptoms of the same output explain a symptom of the check."""


def drop_consequences(symptoms: Sequence[Symptom]) -> list[Symptom]:
    """Drop symptoms that follow from simpler ones.

    If a repeated call has different bits, any call has; if a row has different bits at another
    position, the row differs in another batch, too. If an input is overwritten, the next call with
    that input differs. A result that a thread overwrites is wrong if the result takes long to
    copy, as in a large call. An output that is wrong on ordinary input is wrong on any input. An
    output that is inaccurate is inaccurate on special and subnormal input, too. A result of a
    wrong shape has no rows to compare.
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


def claims_of(cases: Iterable[Case]) -> set[str]:
    """Return the extensions that the cases need: the subject claims them."""
    return {need for case in cases for need in case.needs}
