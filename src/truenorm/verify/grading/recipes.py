"""Which recipe is this? The share of elements that have the bits of each."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from truenorm.verify.grading.guards import Judged, Symptom
from truenorm.verify.grading.report import Recipe
from truenorm.verify.parts import Bits

__all__ = ["Told", "not_as_asked", "recipes_in", "told_in"]

FITS = 0.99
"""The share from which on a recipe is named: float32 arithmetic moves one rounding of thousands,
and two recipes that differ do so in a fifth of the elements."""


Told = Sequence[tuple[Judged, Mapping[str, Bits]]]
"""Results of one type that tell where they are rounded, and what each recipe gives for them."""


def told_in(judged: Collection[Judged]) -> dict[str, Told]:
    """Return, by type, the first results that tell a recipe."""
    found: dict[str, list[tuple[Judged, Mapping[str, Bits]]]] = {}
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
