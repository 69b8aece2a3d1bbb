"""Find the computation that has the bits of results: a recipe, other roundings, or a hypothesis.

A computation returns values, and where they are decided: there, float32 noise cannot change them.
It has the bits of results if nearly all of its decided elements are equal.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.diagnosis.accuracy import Diagnosis
from truenorm.verify.distinctions import FEW, MOST, Mask
from truenorm.verify.operation import Case, Hypothesis, RecipeResult, RoundedResult
from truenorm.verify.oracle import expected
from truenorm.verify.types import Array, Float64s, dtype_of

SAME_RECIPE = 0.9999
"""The share of decided elements that must have the bits of a recipe. Honest kernels have all of
them. Recipes of y differ in a twentieth or more, those of codes in a few of ten thousand."""
SAME_BITS = 0.99
"""The share for a hypothesis. It is less than for a recipe: where float32 noise moves a rounding
is not known here."""


HUGE = 2**13
"""Elements of a case that is compared last."""


class Bits(NamedTuple):
    """The bits by one computation in all cases, and where they are decided."""

    values: Float64s
    decided: Mask

    @classmethod
    def joined(cls, results: Sequence[RecipeResult]) -> "Bits":
        """Join the results of several cases."""
        return cls(
            np.concatenate([each.values.ravel() for each in results]),
            np.concatenate([each.decided.ravel() for each in results]),
        )

    def agrees(self, other: "Bits", same: float = 1.0) -> bool:
        """Return True if two computations hardly differ where both are decided.

        At most a share of 1 - `same` may differ, or fewer than `FEW` elements.
        """
        return int(self._differs(other).sum()) < max(FEW, (1 - same) * self.values.size)

    def beats(self, other: "Bits", result: Float64s) -> bool:
        """Return True if the result has these bits in most elements where the two differ."""
        differs = self._differs(other)
        return _share(result[differs], self.values[differs]) >= MOST

    def _differs(self, other: "Bits") -> Mask:
        return np.asarray(self.decided & other.decided & (self.values != other.values))

    def share(self, result: Float64s) -> float:
        """Return the share of decided elements in which the result has these bits."""
        return _share(result[self.decided], self.values[self.decided])


def _share(one: Float64s, other: Float64s) -> float:
    return float(np.mean(one == other)) if one.size else 0.0


def diagnose_bits(results: Collection[tuple[Case, Array]], output: str) -> Diagnosis:
    """Return the roundings or the hypotheses that have the bits of results without a recipe.

    A hypothesis is rounded once, and must not have the bits of the exact answer. Of several
    computations with the bits, none is named unless all are the same here.
    """
    # Large cases rule out most; in huge ones, thousands of hypotheses take long to compute.
    order = sorted(results, key=lambda each: (each[1].size > HUGE, -each[1].size))
    first = order[0][0]
    roundings = first.operation.knowledge.inner_roundings(first.dtype)
    hypotheses: dict[Cause, RoundedResult] = {
        cause: partial(_rounded_once, output, hypothesis)
        for cause, hypothesis in first.operation.knowledge.hypotheses(output).items()
    }
    tried = len(roundings) + len(hypotheses)
    matching, same = _with_bits(order, roundings, SAME_RECIPE), SAME_RECIPE
    causes = [*matching][:1]
    if not matching:
        matching, same = _with_bits(order, hypotheses, SAME_BITS), SAME_BITS
        causes = [
            cause
            for cause, bits in matching.items()
            if not bits.agrees(_right_bits(order, output), same)
        ]
    if not causes or not all(
        matching[causes[0]].agrees(each, same) for each in map(matching.__getitem__, causes)
    ):
        return Diagnosis((), tried)
    return Diagnosis(tuple(causes), tried, match=bits_of(output), output=output)


def bits_of(output: str) -> str:
    """Return the remark on a cause that has the bits of an output."""
    return f"matches the bits of {output}"


def _right_bits(order: Sequence[tuple[Case, Array]], output: str) -> Bits:
    return Bits.joined([_rounded_once(output, partial(_right, output), case) for case, _ in order])


def _right(output: str, case: Case) -> Float64s:
    return expected(case).number(output)


def _rounded_once(output: str, hypothesis: Hypothesis, case: Case) -> RecipeResult:
    exact = expected(case)
    with np.errstate(all="ignore"):
        values = np.broadcast_to(hypothesis(case), exact.wide[output].shape)
        values = values.astype(dtype_of(exact.types[output])).astype(np.float64)
    return RecipeResult(values, np.ones(values.shape, bool))


def _with_bits(
    order: Sequence[tuple[Case, Array]], candidates: Mapping[Cause, RoundedResult], same: float
) -> dict[Cause, Bits]:
    """Return the computations that have the bits of the results in all cases."""
    matching = {}
    for cause, rounded in candidates.items():
        if (bits := _matching_bits(order, rounded, same)) is not None:
            matching[cause] = bits
    return matching


def _matching_bits(
    order: Sequence[tuple[Case, Array]], rounded: RoundedResult, same: float
) -> Bits | None:
    """Return the bits of a computation; None as soon as too many differ from the results."""
    every, equal, total = [], 0, 0
    for case, result in order:
        bits = rounded(case)
        right = (bits.values == result.astype(np.float64))[bits.decided]
        equal, total = equal + int(right.sum()), total + right.size
        if equal < same * total:
            return None
        every.append(bits)
    return Bits.joined(every) if total else None


def describe_recipe(names: Mapping[str, str], output: str, recipe: str) -> Cause:
    """Return the cause that a result has the bits of another recipe."""
    known, separator, other_sum = recipe.partition(", of the ")
    words = f"{known}, {names[known]}" if names.get(known) else known
    return Cause(f"recipe({recipe})", f"{output} has the bits of {words}{separator}{other_sum}")
