"""Causes of bits that are those of no recipe, or of another one than is claimed."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from truenorm.verify.answers.expected import expected
from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.types import Array, Float64s, dtype_of, unit_roundoff

__all__ = ["of_bits", "of_recipe"]

FITS = 0.99
"""The share of elements whose bits must be those of a hypothesis, as they must for a recipe."""
Came = tuple[Case, Array]
Rounded = Callable[[Case], Float64s]


def of_recipe(says: Mapping[str, str], output: str, name: str) -> str:
    """Say what a recipe is, by its name and what each of them is."""
    known, of, other_sum = name.partition(", of the ")
    words = f"{known}, {says[known]}" if says.get(known) else known
    return f"{output} has the bits of {words}{of}{other_sum}"


def of_bits(came: Sequence[Came], output: str, asked: str) -> str:
    """Name the hypothesis that has the bits of a result, rounded once; several, if all do.

    A parameter of a wider type than x may also be rounded to that type first, and what comes of
    it as is asked.
    """
    order = sorted(came, key=lambda one: -one[1].size)  # in the largest most of them fall
    candidates: dict[str, Rounded] = {
        words: partial(_once, output, each)
        for words, each in order[0][0].operation.hypotheses(output).items()
    }
    for name in order[0][0].operation.inputs_of("parameter"):
        words = f"{name} is rounded to the type of x first, and the rest as {asked} asks"
        candidates[words] = partial(_narrowed, name, asked)
    found: dict[str, list[Float64s]] = {}
    for words, rounded in candidates.items():
        if numbers := _fitting(order, rounded):
            found[words] = numbers
    if not found:
        return ""
    first = next(iter(found.values()))
    if not all(_alike(first, others) for others in found.values()):
        return ""
    return f"{output} has the bits of what comes out if {', or '.join(found)}"


def _once(output: str, hypothesis: Hypothesis, case: Case) -> Float64s:
    exact = expected(case)
    with np.errstate(all="ignore"):
        numbers = np.broadcast_to(hypothesis(case), exact.wide[output].shape)
        return numbers.astype(dtype_of(exact.types[output])).astype(np.float64)


def _narrowed(name: str, asked: str, case: Case) -> Float64s:
    given: Array | None = case.inputs[name]
    if given is None or unit_roundoff(given.dtype.name) >= unit_roundoff(case.dtype):
        return np.full(case.shape, np.nan)
    narrow = given.astype(dtype_of(case.dtype)).astype(given.dtype)
    return case.operation.recipes(case.with_inputs(**{name: narrow}))[asked].values


def _fitting(order: Sequence[Came], rounded: Rounded) -> list[Float64s]:
    """Return what a hypothesis gives in each case; nothing as soon as too many bits are others."""
    left = (1 - FITS) * sum(result.size for _, result in order)
    found = []
    for case, result in order:
        numbers = rounded(case)
        left -= float((numbers != result.astype(np.float64)).sum())
        if left < 0:
            return []
        found.append(numbers)
    return found


def _alike(one: Sequence[Float64s], other: Sequence[Float64s]) -> bool:
    """Tell whether two hypotheses have the same bits, but for a few."""
    same = sum(int((mine == theirs).sum()) for mine, theirs in zip(one, other, strict=True))
    return same >= FITS * sum(each.size for each in one)
