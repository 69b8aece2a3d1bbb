"""For which results a cause is sought, and in which cases."""

from collections.abc import Collection

from truenorm.verify.causes.holding import Came
from truenorm.verify.causes.naming import Cause, cause_of
from truenorm.verify.grading.guards import GUARDS, Judged, Symptom
from truenorm.verify.grading.measuring import UNEXPLAINED
from truenorm.verify.own.cases import is_own

__all__ = ["causes_of"]


def causes_of(
    symptoms: Collection[Symptom], judged: Collection[Judged]
) -> dict[tuple[str, str], Cause]:
    """Return causes by type and output, of all whose accuracy is not what it should be.

    What is wrong on ordinary input is looked at there alone, where no large kappa blurs it.
    """
    guards: dict[tuple[str, str], set[str]] = {}
    for each in symptoms:
        if GUARDS.get(each.guard) == "accuracy":
            guards.setdefault((each.case.dtype, each.output), set()).add(each.guard)
    found = {}
    for (dtype, output), seen in guards.items():
        plainly = "ordinary" in seen
        kinds = ("ordinary",) if plainly else ("ordinary", "sweep", "hard")
        least = UNEXPLAINED if plainly else 1
        came = [
            Came(one.case, output, one.result, one.error.needs < least)
            for one in judged
            if (one.case.dtype, one.output) == (dtype, output)
            and one.case.kind in kinds
            and not is_own(one.case)  # of which no result is kept
        ]
        if came:
            hypotheses = came[0].case.operation.hypotheses(output)
            found[dtype, output] = cause_of(came, hypotheses, partly=plainly)
    return found
