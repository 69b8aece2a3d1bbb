"""How results are rounded: recipes, scaling of codes, and roundings that break a rule.

A recipe is a set of intermediate roundings of a kernel, which the bits of results show. A recipe
decides an element if float32 noise cannot change any of the roundings. The bits of nearly all
decided elements must be those of the recipe: see `truenorm.verify.diagnosis.bits`.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.causes import Cause
from truenorm.verify.diagnosis.accuracy import Diagnosis
from truenorm.verify.diagnosis.bits import (
    SAME_RECIPE,
    Bits,
    bits_of,
    describe_recipe,
    diagnose_bits,
)
from truenorm.verify.grading.report import Grade, Recipe
from truenorm.verify.grading.symptoms import MeasuredResult, Symptom, first_index
from truenorm.verify.operation import Case, Quantization, RecipeResult, Results
from truenorm.verify.oracle import expected
from truenorm.verify.user_cases import is_user_case

MOST_ELEMENTS = 2**20
RecipeEvidence = Sequence[tuple[MeasuredResult, Mapping[str, RecipeResult]]]
"""Results of one output in one type, each with the bits by every recipe."""


class Roundings(NamedTuple):
    """The roundings of the results of all types, identified by bits.

    `evidence` has the results of the first output by type, each with the bits by every recipe.
    """

    recipes: tuple[Recipe, ...]
    backward_recipes: tuple[Recipe, ...]
    quantization: tuple[Quantization, ...]
    evidence: Mapping[str, RecipeEvidence]

    def symptoms(
        self,
        measured: Sequence[MeasuredResult],
        below: Collection[tuple[str, str]],
        required: str,
    ) -> list[Symptom]:
        """Return the symptoms of accurate results that are not rounded as required.

        Places `below` the required grade are left out. `required` is the recipe that the subject
        claims, or empty.
        """
        accurate = [one for one in measured if one.type_and_output not in below]
        scales = [each for each in self.quantization if (each.dtype, "scale") not in below]
        symptoms = [*biased_symptoms(accurate), *floor_symptoms(scales, measured)]
        if required:
            symptoms += recipe_symptoms(self.recipes, self.evidence, required)
        return symptoms


def identify_roundings(measured: Collection[MeasuredResult], grades: Iterable[Grade]) -> Roundings:
    """Identify the recipes of all types, and the scaling of quantized results.

    The bits of a first output that is wrong are not explained.
    """
    evidence, ways = recipe_evidence(measured), way_evidence(measured)
    wrong = {each.type_and_output for each in grades if each.grade == "wrong"}
    recipes = tuple(
        identify_forward(
            each, explain=each[0][0].type_and_output not in wrong, ways=ways.get(dtype)
        )
        for dtype, each in evidence.items()
    )
    backward = tuple(map(identify_backward, backward_evidence(measured).values()))
    return Roundings(recipes, backward, quantizations(measured), evidence)


def recipe_evidence(measured: Iterable[MeasuredResult]) -> dict[str, RecipeEvidence]:
    """Return, by type, the results of the first output whose bits distinguish recipes."""
    evidence = _evidence(
        filter(_is_first, measured),
        lambda case, _, results: case.operation.knowledge.recipes(case, results),
    )
    return {dtype: each for (dtype, _), each in evidence.items()}


def way_evidence(measured: Iterable[MeasuredResult]) -> dict[str, RecipeEvidence]:
    """Return, by type, the codes whose bits distinguish ways to scale y."""

    def bits_of(case: Case, _: str, results: Results) -> Mapping[str, RecipeResult]:
        codes = case.operation.knowledge.codes
        return codes.ways(case, results) if codes else {}

    evidence = _evidence(filter(_is_first, measured), bits_of)
    return {dtype: each for (dtype, _), each in evidence.items()}


def backward_evidence(measured: Iterable[MeasuredResult]) -> dict[tuple[str, str], RecipeEvidence]:
    """Return, by type and output, the results of backward whose bits distinguish recipes."""
    return _evidence(
        measured, lambda case, output, _: case.operation.knowledge.backward_recipes(case, output)
    )


def _is_first(one: MeasuredResult) -> bool:
    return one.output == one.case.operation.outputs[0].name


def _evidence(
    measured: Iterable[MeasuredResult],
    bits_of: Callable[[Case, str, Results], Mapping[str, RecipeResult]],
) -> dict[tuple[str, str], RecipeEvidence]:
    """Return, by type and output, the results for which there are bits to compare.

    Cases of more than `MOST_ELEMENTS` are left out: they would take minutes, and rows repeat.
    """
    evidence: dict[tuple[str, str], list[tuple[MeasuredResult, Mapping[str, RecipeResult]]]] = {}
    for one in measured:
        if one.case.first.size > MOST_ELEMENTS:
            continue
        if bits := bits_of(one.case, one.output, one.record.results):
            evidence.setdefault(one.type_and_output, []).append((one, bits))
    return dict(evidence)


def quantizations(measured: Iterable[MeasuredResult]) -> tuple[Quantization, ...]:
    """Return the summary of codes and scales in each type that has codes."""
    runs: dict[str, list[tuple[Case, Results]]] = defaultdict(list)
    for one in measured:
        if _is_first(one) and not is_user_case(one.case):
            runs[one.case.dtype].append((one.case, one.record.results))
    known = ((each, each[0][0].operation.knowledge.codes) for each in runs.values())
    every = (codes.summarize(each) for each, codes in known if codes is not None)
    return tuple(each for each in every if each is not None)


def identify_recipe(evidence: RecipeEvidence) -> Recipe:
    """Count the elements that have the bits of each recipe; group recipes that hardly differ."""
    every = {name: Bits.joined([bits[name] for _, bits in evidence]) for name in evidence[0][1]}
    result = np.concatenate([one.result.astype(np.float64).ravel() for one, _ in evidence])
    groups: list[list[str]] = []
    for name, bits in every.items():
        for group in groups:
            if bits.agrees(every[group[0]]):
                group.append(name)
                break
        else:
            groups.append([name])
    # A few elements may show no difference: then the first recipe stands for its group.
    shares = {group[0]: max(every[name].share(result) for name in group) for group in groups}
    matching = [name for name, share in shares.items() if share >= SAME_RECIPE]
    matching = [
        name
        for name in matching
        if all(every[name].beats(every[each], result) for each in matching if each != name)
    ]
    same = {first: tuple(others) for first, *others in groups}
    dtype, output = evidence[0][0].type_and_output
    return Recipe(dtype, matching[0] if len(matching) == 1 else "", shares, same, output)


def identify_forward(
    evidence: RecipeEvidence, *, explain: bool, ways: RecipeEvidence | None = None
) -> Recipe:
    """Identify the recipe of the first output; if no recipe matches, explain the bits."""
    recipe = identify_recipe(evidence)
    if ways:
        way = identify_recipe(ways)
        # Recipes whose names have the way compute the rows that show it.
        named = evidence[0][0].case.operation.knowledge.recipe_names
        name = way.name if f"{recipe.name}, {way.name}" in named else ""
        recipe = replace(recipe, way=name, ways=way.shares)
    if recipe.name or not explain:
        return recipe
    found = diagnose_bits([(one.case, one.result) for one, _ in evidence], recipe.output)
    tried = len(evidence[0][1]) + found.tried
    return replace(recipe, causes=found.causes, explanation=found.words(), tried=tried)


def identify_backward(evidence: RecipeEvidence) -> Recipe:
    """Identify the recipe of a result of backward."""
    recipe = identify_recipe(evidence)
    if recipe.name in ("", next(iter(evidence[0][1]))):  # the first recipe has no roundings
        return recipe
    words = f"backward computes {recipe.output} from {recipe.name} rounded to {recipe.dtype}"
    cause = Cause(f"backward-recipe({recipe.name})", words)
    return replace(recipe, causes=(cause,), explanation=words)


def recipe_symptoms(
    recipes: Collection[Recipe], evidence: Mapping[str, RecipeEvidence], required: str
) -> list[Symptom]:
    """Return a symptom for each type in which the bits are not those of the required recipe.

    Only the bits of another recipe refute a recipe whose bits no case shows. The same holds for a
    way to scale y, which no ordinary case shows.
    """
    symptoms = []
    for each in recipes:
        compared = {name for first, others in each.same.items() for name in (first, *others)}
        shown = required if each.ways or required in compared else required.rpartition(", ")[0]
        if shown in each.names:
            continue
        if required not in each.names and (each.name or required in compared):
            one = max((one for one, _ in evidence[each.dtype]), key=lambda one: one.result.size)
            text = f"{one.output} is not rounded as {required} requires: {each}"
            if any(required.startswith(f"{name}, ") for name in each.names if each.ways):
                text = f"{one.output} is not scaled as {required} requires: {each.ways_text}"
            symptoms.append(Symptom("recipe", one.case, one.record, one.output, text))
    return symptoms


def floor_symptoms(
    quantization: Collection[Quantization], measured: Collection[MeasuredResult]
) -> list[Symptom]:
    """Return a symptom for each type whose tiny groups follow no single rule for the scale."""
    symptoms = []
    for each in quantization:
        if len(each.floors) > 1:
            rules = [f"{rule} in {case}" for rule, case in each.floors.items()]
            text = f"the least scale follows several rules: {', '.join(rules)}"
            first = next(iter(each.floors.values()))
            one = next(one for one in measured if (one.case.name, one.output) == (first, "scale"))
            symptoms.append(Symptom("floor", one.case, one.record, one.output, text))
    return symptoms


def diagnose_recipes(
    symptoms: Collection[Symptom], recipes: Collection[Recipe]
) -> dict[tuple[str, str, str], Diagnosis]:
    """Name the recipe, or the explanation, that has the bits of a result."""
    diagnoses = {}
    by_type = {each.dtype: each for each in recipes}
    for each in symptoms:
        if each.guard == "recipe":
            recipe = by_type[each.case.dtype]
            found = Diagnosis(
                recipe.causes, recipe.tried, match=bits_of(each.output), output=each.output
            )
            if recipe.name:
                names = each.case.operation.knowledge.recipe_names
                other = describe_recipe(names, each.output, recipe.full_name)
                found = found._replace(causes=(other,), match="")
            diagnoses["recipe", recipe.dtype, each.output] = found
    return diagnoses


def rounding_symptoms(
    measured: Iterable[MeasuredResult], places: Collection[tuple[str, str]]
) -> list[Symptom]:
    """Return symptoms of results at these places that are stable but not rounded as required."""
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


MOST_NOT_NEAREST = 1e-3
"""The share of elements that may not be the nearest number, in an output that is rounded once.
Half an ulp of bias in a sum that is used again shrinks the sum with every layer (aiter#5151)."""


def biased_symptoms(measured: Iterable[MeasuredResult]) -> list[Symptom]:
    """Return a symptom for each output that is rounded once, but often not to nearest."""
    groups: dict[tuple[str, str], list[MeasuredResult]] = {}
    for one in measured:
        once = one.output in one.case.operation.rounded_once and one.case.kind == "ordinary"
        if once and one.result.size:  # results of user cases are not kept
            groups.setdefault(one.type_and_output, []).append(one)
    symptoms = []
    for group in groups.values():
        wrong = sum(int((~_nearest(one)).sum()) for one in group)
        share = wrong / max(sum(one.result.size for one in group), 1)
        if share > MOST_NOT_NEAREST:
            one = max(group, key=lambda one: int((~_nearest(one)).sum()))
            text = f"{one.output} is not rounded to nearest in {100 * share:.2g} % of its elements"
            at = first_index(~_nearest(one))
            symptoms.append(Symptom("biased", one.case, one.record, one.output, text, at))
    return symptoms


def _nearest(one: MeasuredResult) -> NDArray[np.bool_]:
    return expected(one.case).element_errors(one.output, one.result).correct


def explain_bias(output: str, measured: Iterable[MeasuredResult]) -> Cause | None:
    """Return the direction in which an output is rounded, if it is the same everywhere."""
    towards_zero = down = True
    for one in measured:
        if one.output == output and one.case.kind == "ordinary" and one.result.size:
            answers, result = expected(one.case), one.result.astype(np.float64)
            exact = answers.wide[output] + answers.remainders[output] * answers.ulps[output]
            towards_zero &= bool((np.abs(result) <= np.abs(exact)).all())
            down &= bool((result <= exact).all())
    if towards_zero:
        return Cause("truncated", f"{output} is truncated, not rounded to nearest")
    return Cause("rounded-down", f"{output} is rounded down") if down else None
