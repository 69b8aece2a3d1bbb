"""Results by recipes: which steps are rounded to 16 bits, and which elements float32 decides.

Kernels compute in float32, whose errors decide a rounding of a number next to a midpoint. An
arithmetic of numbers with their errors says which elements these are; they are undecided.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from truenorm.verify.formulas.answers import Given
from truenorm.verify.formulas.arithmetic import evaluate
from truenorm.verify.formulas.graph import Node
from truenorm.verify.formulas.rounding import float32_noise, operation_error, round_decided
from truenorm.verify.formulas.running_error import Erring, RunningErrors
from truenorm.verify.operation import RecipeResult
from truenorm.verify.types import unit_roundoff


class InFloat32(RunningErrors):
    """Numbers as float32 arithmetic computes them; a root takes two divisions."""

    own = staticmethod(operation_error)
    of_sum = staticmethod(float32_noise)
    of_root, of_function = 4.0, 8 * unit_roundoff("float32")


def by_recipe(
    output: Node, rounded: Collection[Node], given: Given, kind: str, to: str
) -> RecipeResult:
    """Return an output in the type `to`, with some steps rounded to the type `kind`."""
    decided: Any = True

    def rounding(number: Erring, kind: str) -> Erring:
        nonlocal decided
        values, known = round_decided(number.values, number.error, kind)
        decided = decided & known
        return InFloat32.of(values)

    def change(node: Node, number: Erring) -> Erring:
        return rounding(number, kind) if node in rounded else number

    with np.errstate(all="ignore"):
        result = rounding(evaluate([output], InFloat32, given, change)[output], to)
    return RecipeResult(result.values, np.broadcast_to(decided, result.shape))
