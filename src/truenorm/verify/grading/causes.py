"""For which symptoms a cause is sought, and in which cases."""

from collections.abc import Collection, Mapping, Sequence

from truenorm.verify.causes import forms, memory, orders, values
from truenorm.verify.causes.bits import of_bits, of_recipe
from truenorm.verify.causes.holding import Came
from truenorm.verify.causes.naming import Cause, cause_of
from truenorm.verify.causes.seen import Explains, Seen
from truenorm.verify.grading.guards import GUARDS, Judged, Symptom
from truenorm.verify.grading.measuring import UNEXPLAINED
from truenorm.verify.grading.recipes import Told
from truenorm.verify.grading.report import Recipe
from truenorm.verify.operation import Case
from truenorm.verify.own.cases import is_own
from truenorm.verify.runs.calls import Record

__all__ = ["Causes", "causes_of", "causes_of_conduct", "causes_of_recipes"]

Causes = dict[tuple[str, str, str], Cause]
"""By guard, type and output; for what is inaccurate, ``accuracy`` stands for its guards."""
EXPLAINED: dict[str, Explains] = {
    "raised": forms.of_raised,
    "shape": forms.of_shape,
    "type": forms.of_type,
    "special": values.of_special,
    "subnormal": values.of_subnormal,
    "repeat": orders.of_repeat,
    "sums": orders.of_repeat,
    "position": orders.of_position,
    "batch": orders.of_batch,
    "large": memory.of_large,
    "inputs": memory.of_inputs,
    "overwritten": memory.of_overwritten,
    "stale": memory.of_stale,
    "spent": memory.of_spent,
}
"""By guard: who can say why."""


def causes_of(symptoms: Collection[Symptom], judged: Collection[Judged]) -> Causes:
    """Return causes by type and output, of all whose accuracy is not what it should be.

    What is wrong on ordinary input is looked at there alone, where no large kappa blurs it, and
    where eps outweighs the rest: what is said of eps must be true of that too.
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
            and (one.case.kind in kinds or (one.case.kind == "hard" and one.case.eps >= 1))
            and not is_own(one.case)  # of which no result is kept
        ]
        if came:
            hypotheses = came[0].case.operation.hypotheses(output)
            found["accuracy", dtype, output] = cause_of(came, hypotheses, partly=plainly)
    return found


def causes_of_conduct(
    symptoms: Collection[Symptom],
    cases: Collection[Case],
    records: Mapping[str, Sequence[Record]],
) -> Causes:
    """Return causes of everything else that was seen, from what came back in all cases."""
    wrong: dict[tuple[str, str, str], set[str]] = {}
    for each in symptoms:
        if each.guard in EXPLAINED:
            place = (each.guard, each.case.dtype, each.output)
            wrong.setdefault(place, set()).add(each.case.name)
    found = {}
    for (guard, dtype, output), names in wrong.items():
        seen = [
            Seen(case, records[case.name], case.name in names)
            for case in cases
            if case.dtype == dtype and not is_own(case)
        ]
        if any(each.wrong for each in seen):
            found[guard, dtype, output] = Cause(EXPLAINED[guard](output, seen), 0)
    return found


def causes_of_recipes(
    symptoms: Collection[Symptom],
    recipes: Collection[Recipe],
    told: Mapping[str, Told],
    asked: str,
) -> Causes:
    """Return which recipe the bits are of, or which hypothesis."""
    found = {}
    by_type = {each.dtype: each for each in recipes}
    for each in symptoms:
        if each.guard == "recipe":
            dtype, says = each.case.dtype, each.case.operation.recipe_names
            came = [(one.case, one.result) for one, _ in told[dtype]]
            name = by_type[dtype].name
            words = of_recipe(says, each.output, name) if name else ""
            words = words or of_bits(came, each.output, asked)
            found["recipe", dtype, each.output] = Cause(words, 0)
    return found
