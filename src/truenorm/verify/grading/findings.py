"""Which recipe is this? The share of elements that have the bits of each."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from truenorm.verify.diagnosis import conduct, values
from truenorm.verify.diagnosis.diagnosis import UNKNOWN, Cause, cause_of
from truenorm.verify.diagnosis.evidence import Came, Explains, Seen
from truenorm.verify.diagnosis.values import of_bits, of_recipe
from truenorm.verify.grading.checks import GUARDS, Judged, Symptom
from truenorm.verify.grading.errors import UNEXPLAINED
from truenorm.verify.grading.report import ACCURACY, Finding, Grade, Recipe
from truenorm.verify.grading.reproducer import reproducer
from truenorm.verify.operation import Case, RecipeResult
from truenorm.verify.running.records import PLAIN, Record
from truenorm.verify.subject import SubjectSpec
from truenorm.verify.user_cases import is_user_case

FITS = 0.99
"""The share from which on a recipe is named: float32 arithmetic moves one rounding of thousands,
and two recipes that differ do so in a fifth of the elements."""


Told = Sequence[tuple[Judged, Mapping[str, RecipeResult]]]
"""Results of one type that tell where they are rounded, and what each recipe gives for them."""


def told_in(judged: Collection[Judged]) -> dict[str, Told]:
    """Return, by type, the first results that tell a recipe."""
    found: dict[str, list[tuple[Judged, Mapping[str, RecipeResult]]]] = {}
    for one in judged:
        operation = one.case.operation
        if one.output == operation.outputs[0].name and (bits := operation.recipes(one.case)):
            found.setdefault(one.case.dtype, []).append((one, bits))
    return dict(found)


def recipes_in(told: Mapping[str, Told]) -> tuple[Recipe, ...]:
    """Return what is known of the recipe of the first result, in each type."""
    return tuple(_recipe(dtype, given) for dtype, given in told.items())


def _recipe(dtype: str, given: Told) -> Recipe:
    """Count the elements that have the bits of each recipe; those that hardly differ are one."""
    names = list(given[0][1])
    by_name = {
        name: np.concatenate([bits[name].values.ravel() for _, bits in given]) for name in names
    }
    known = np.concatenate(
        [
            np.logical_and.reduce([bits[name].decided.ravel() for name in names])
            for _, bits in given
        ]
    )
    got = np.concatenate([one.result.astype(np.float64).ravel() for one, _ in given])
    groups: list[list[str]] = []
    for name in names:
        for group in groups:
            if np.mean(by_name[name][known] == by_name[group[0]][known]) >= FITS:
                group.append(name)
                break
        else:
            groups.append([name])
    shares = {group[0]: float(np.mean(got[known] == by_name[group[0]][known])) for group in groups}
    fitting = [name for name, share in shares.items() if share >= FITS]
    same = {first: tuple(others) for first, *others in groups}
    return Recipe(dtype, fitting[0] if len(fitting) == 1 else "", shares, same)


def not_as_asked(
    recipes: Collection[Recipe], told: Mapping[str, Told], asked: str
) -> list[Symptom]:
    """Say where another recipe was asked for than the bits are of."""
    found = []
    for each in recipes:
        if asked in each.names:
            continue
        one = max((one for one, _ in told[each.dtype]), key=lambda one: one.result.size)
        text = f"{one.output} is not rounded as {asked} asks: {each}"
        found.append(Symptom("recipe", one.case, one.record, one.output, text))
    return found


Causes = dict[tuple[str, str, str], Cause]
"""By guard, type and output; for what is inaccurate, ``accuracy`` stands for its guards."""
EXPLAINED: dict[str, Explains] = {
    "raised": conduct.of_raised,
    "shape": conduct.of_shape,
    "type": conduct.of_type,
    "special": values.of_special,
    "subnormal": values.of_subnormal,
    "repeat": conduct.of_repeat,
    "sums": conduct.of_repeat,
    "position": conduct.of_position,
    "batch": conduct.of_batch,
    "large": conduct.of_large,
    "inputs": conduct.of_inputs,
    "overwritten": conduct.of_overwritten,
    "stale": conduct.of_stale,
    "spent": conduct.of_spent,
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
            and not is_user_case(one.case)  # of which no result is kept
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
            if case.dtype == dtype and not is_user_case(case)
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
    spec: SubjectSpec,
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
                reproducer(shown, spec),
                cause.words,
                cause.tried,
                tuple(sorted({each.case.family for each in group})),
            )
        )
    order = [*GUARDS, "rounding"]
    return tuple(sorted(found, key=lambda each: order.index(each.guard)))
