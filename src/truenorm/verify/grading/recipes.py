"""Identify the recipes of a subject: the roundings on the way that explain the bits of results.

An element is decided by a recipe if float32 noise cannot change any of its roundings. A recipe
must have the bits of nearly all elements that it decides.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.diagnosis.accuracy import Diagnosis, describe_recipe, diagnose_bits
from truenorm.verify.grading.report import Grade, Recipe
from truenorm.verify.grading.rounding import biased_symptoms
from truenorm.verify.grading.symptoms import MeasuredResult, Symptom
from truenorm.verify.operation import Case, Quantization, RecipeResult, Results, RoundedResult
from truenorm.verify.types import Float64s
from truenorm.verify.user_cases import is_user_case

SAME_RECIPE = 0.9999
"""The share of decided elements that must have the bits of a recipe. Honest kernels have all of
them. Recipes of y differ in a twentieth or more, those of codes in a few of ten thousand."""
MOST_ELEMENTS = 2**20
FEW, MOST = 8, 0.95
"""Two recipes are distinguished by this many elements in which they differ; of several that match,
one is named if it has this share of those elements against each other one."""
RecipeEvidence = Sequence[tuple[MeasuredResult, Mapping[str, RecipeResult]]]
"""Results of one output in one type, each with the bits by every recipe."""


class Bits(NamedTuple):
    """How the results of all types are rounded, as their bits show it.

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
        guards: Collection[str],
        required: str,
    ) -> list[Symptom]:
        """Return the symptoms of results that are accurate, and not rounded as they must be.

        Places `below` the required grade are left out. `required` is the recipe that the subject
        claims, or empty.
        """
        symptoms: list[Symptom] = []
        if "biased" in guards:
            accurate = [one for one in measured if one.type_and_output not in below]
            symptoms += biased_symptoms(accurate)
        if "floor" in guards:
            scales = [each for each in self.quantization if (each.dtype, "scale") not in below]
            symptoms += floor_symptoms(scales, measured)
        if required and "recipe" in guards:
            symptoms += recipe_symptoms(self.recipes, self.evidence, required)
        return symptoms


def identify_bits(measured: Collection[MeasuredResult], grades: Iterable[Grade]) -> Bits:
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
    return Bits(recipes, backward, quantizations(measured), evidence)


def recipe_evidence(measured: Collection[MeasuredResult]) -> dict[str, RecipeEvidence]:
    """Return, by type, the results of the first output whose bits distinguish recipes."""
    return _of_first_output(
        measured, lambda case, results: case.operation.knowledge.recipes(case, results)
    )


def way_evidence(measured: Collection[MeasuredResult]) -> dict[str, RecipeEvidence]:
    """Return, by type, the codes whose bits distinguish ways to scale y."""
    return _of_first_output(
        measured, lambda case, results: case.operation.knowledge.ways(case, results)
    )


def _of_moderate_size(measured: Iterable[MeasuredResult]) -> Iterator[MeasuredResult]:
    """Yield results of cases whose bits do not take minutes: larger ones repeat their rows."""
    return (one for one in measured if one.case.x.size <= MOST_ELEMENTS)


def _of_first_output(
    measured: Collection[MeasuredResult],
    bits_of: Callable[[Case, Results], Mapping[str, RecipeResult]],
) -> dict[str, RecipeEvidence]:
    """Return, by type, the results of the first output for which there are bits to compare."""
    evidence: dict[str, list[tuple[MeasuredResult, Mapping[str, RecipeResult]]]] = {}
    for one in _of_moderate_size(measured):
        is_first = one.output == one.case.operation.outputs[0].name
        if is_first and (bits := bits_of(one.case, one.record.results)):
            evidence.setdefault(one.case.dtype, []).append((one, bits))
    return dict(evidence)


def backward_evidence(
    measured: Collection[MeasuredResult],
) -> dict[tuple[str, str], RecipeEvidence]:
    """Return, by type and output, the results of backward whose bits distinguish recipes."""
    evidence: dict[tuple[str, str], list[tuple[MeasuredResult, Mapping[str, RecipeResult]]]] = {}
    for one in _of_moderate_size(measured):
        if bits := one.case.operation.knowledge.backward_recipes(one.case, one.output):
            evidence.setdefault(one.type_and_output, []).append((one, bits))
    return dict(evidence)


def quantizations(measured: Iterable[MeasuredResult]) -> tuple[Quantization, ...]:
    """Return the summary of codes and scales in each type, if there are any."""
    runs: dict[str, list[tuple[Case, Results]]] = defaultdict(list)
    for one in measured:
        if one.output == one.case.operation.outputs[0].name and not is_user_case(one.case):
            runs[one.case.dtype].append((one.case, one.record.results))
    every = (each[0][0].operation.knowledge.quantization(each) for each in runs.values())
    return tuple(each for each in every if each is not None)


class _RecipeBits(NamedTuple):
    """The bits by one recipe in all cases, and where they are decided."""

    values: Float64s
    decided: NDArray[np.bool_]

    def agrees(self, other: "_RecipeBits") -> bool:
        """Return True if two recipes hardly differ where both are decided."""
        return int(self._differs(other).sum()) < FEW

    def beats(self, other: "_RecipeBits", result: Float64s) -> bool:
        """Return True if the result has these bits in most elements where the two differ."""
        differs = self._differs(other)
        return _share(result[differs], self.values[differs]) >= MOST

    def _differs(self, other: "_RecipeBits") -> NDArray[np.bool_]:
        return np.asarray(self.decided & other.decided & (self.values != other.values))

    def share(self, result: Float64s) -> float:
        """Return the share of decided elements in which the result has these bits."""
        return _share(result[self.decided], self.values[self.decided])


def _share(one: Float64s, other: Float64s) -> float:
    return float(np.mean(one == other)) if one.size else 0.0


def _joined(results: Sequence[RecipeResult]) -> _RecipeBits:
    return _RecipeBits(
        np.concatenate([each.values.ravel() for each in results]),
        np.concatenate([each.decided.ravel() for each in results]),
    )


def identify_recipe(evidence: RecipeEvidence) -> Recipe:
    """Count the elements that have the bits of each recipe; group recipes that hardly differ."""
    every = {name: _joined([bits[name] for _, bits in evidence]) for name in evidence[0][1]}
    result = np.concatenate([one.result.astype(np.float64).ravel() for one, _ in evidence])
    groups: list[list[str]] = []
    for name, bits in every.items():
        for group in groups:
            if bits.agrees(every[group[0]]):
                group.append(name)
                break
        else:
            groups.append([name])
    # Where a few elements show no difference, the first of a group stands for all of it.
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
    """Identify the recipe of the first output; if none matches, find what explains the bits."""
    recipe = identify_recipe(evidence)
    if ways:
        way = identify_recipe(ways)
        # The rows for it are computed by recipes that have a name with the way.
        named = evidence[0][0].case.operation.knowledge.recipe_names
        name = way.name if f"{recipe.name}, {way.name}" in named else ""
        recipe = replace(recipe, way=name, ways=way.shares)
    if recipe.name or not explain:
        return recipe
    found = explain_bits(evidence)
    return replace(recipe, explanation=found.cause, tried=found.tried)


def identify_backward(evidence: RecipeEvidence) -> Recipe:
    """Identify the recipe of a result of backward."""
    recipe = identify_recipe(evidence)
    if recipe.name in ("", next(iter(evidence[0][1]))):  # the first is without roundings
        return recipe
    words = f"backward computes {recipe.output} from {recipe.name} rounded to {recipe.dtype}"
    return replace(recipe, explanation=words)


def explain_bits(evidence: RecipeEvidence) -> Diagnosis:
    """Return the rounding or the hypothesis that has the bits of results without a recipe."""
    order = sorted((one for one, _ in evidence), key=lambda one: -one.result.size)
    first, output = order[0].case, order[0].output
    results: dict[str, list[RecipeResult]] = {}
    candidates = first.operation.knowledge.inner_roundings(first.dtype)
    for words, rounded in candidates.items():
        if bits := _with_bits(order, rounded):
            results[words] = bits
    hypotheses = len(first.operation.knowledge.hypotheses(output))
    tried = len(evidence[0][1]) + len(candidates) + hypotheses
    if not results:
        return Diagnosis(diagnose_bits([(one.case, one.result) for one in order], output), tried)
    (words, bits), *others = results.items()
    # Of several that have the bits, one is named if the others are the same here.
    if not all(_joined(bits).agrees(_joined(each)) for _, each in others):
        return Diagnosis("", tried)
    return Diagnosis(f"{words} (matches the bits of {output})", tried)


def _with_bits(order: Sequence[MeasuredResult], rounded: RoundedResult) -> list[RecipeResult]:
    """Return a rounded result in each case; [] as soon as too many bits differ in one."""
    every, equal, total = [], 0, 0
    for one in order:
        bits = rounded(one.case)
        same = (bits.values == one.result.astype(np.float64))[bits.decided]
        equal, total = equal + int(same.sum()), total + same.size
        if equal < SAME_RECIPE * total:
            return []
        every.append(bits)
    return every if total else []


def recipe_symptoms(
    recipes: Collection[Recipe], evidence: Mapping[str, RecipeEvidence], required: str
) -> list[Symptom]:
    """Return a symptom for each type in which the bits are not those of the required recipe.

    A recipe whose bits no case shows is refuted only by the bits of another one. So is a way to
    scale y, which no ordinary case shows.
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
            cause = recipe.explanation
            if recipe.name:
                descriptions = each.case.operation.knowledge.recipe_names
                cause = describe_recipe(descriptions, each.output, recipe.full_name)
            diagnoses["recipe", recipe.dtype, each.output] = Diagnosis(cause, recipe.tried)
    return diagnoses
