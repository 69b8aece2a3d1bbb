"""Which recipe is this? The share of elements that have the bits of each."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from truenorm.verify.grading.guards import Judged, Symptom
from truenorm.verify.grading.report import Recipe
from truenorm.verify.parts import Bits

__all__ = ["not_as_asked", "recipes_in"]

FITS = 0.99
"""The share from which on a recipe is named: float32 arithmetic moves one rounding of thousands,
and two recipes that differ do so in a fifth of the elements."""


def recipes_in(judged: Collection[Judged]) -> tuple[Recipe, ...]:
    """Return what is known of the recipe of the first result, in each type."""
    found = []
    for dtype in dict.fromkeys(one.case.dtype for one in judged):
        mine = [one for one in judged if one.case.dtype == dtype]
        given = [(one, recipes) for one in mine if (recipes := _recipes(one))]
        if given:
            found.append(_recipe(dtype, given))
    return tuple(found)


def _recipes(one: Judged) -> Mapping[str, Bits]:
    """Return the recipes of a result, if it is one that tells them."""
    operation = one.case.operation
    return operation.recipes(one.case) if one.output == operation.outputs[0].name else {}


def _recipe(dtype: str, given: Sequence[tuple[Judged, Mapping[str, Bits]]]) -> Recipe:
    """Count the elements that have the bits of each recipe; those that hardly differ are one."""
    names = list(given[0][1])
    by_name = {
        name: np.concatenate([bits[name].values.ravel() for _, bits in given]) for name in names
    }
    known = np.concatenate(
        [np.logical_and.reduce([bits[name].known.ravel() for name in names]) for _, bits in given]
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
    recipes: Collection[Recipe], judged: Collection[Judged], asked: str
) -> list[Symptom]:
    """Say where another recipe was asked for than the bits are of."""
    found = []
    for each in recipes:
        if asked in each.names:
            continue
        told = [one for one in judged if one.case.dtype == each.dtype and _recipes(one)]
        one = max(told, key=lambda one: one.result.size)
        text = f"{one.output} is not rounded as {asked} asks: {each}"
        found.append(Symptom("recipe", one.case, one.record, one.output, text))
    return found
