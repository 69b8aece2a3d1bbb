"""Results by recipes: which steps are rounded to 16 bits, and which elements float32 decides.

Kernels compute in float32, whose errors decide a rounding of a number next to a midpoint. An
arithmetic of numbers with their errors says which elements these are; they are undecided.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from truenorm.verify.formulas.answers import Given
from truenorm.verify.formulas.arithmetic import Axes, Floats, count_along, evaluate
from truenorm.verify.formulas.graph import Node
from truenorm.verify.formulas.rounding import float32_noise, operation_error, round_decided
from truenorm.verify.operation import RecipeResult
from truenorm.verify.types import Array, Float64s, unit_roundoff

GATE_ERROR = 8 * unit_roundoff("float32")
"""The relative error of a sigmoid in float32, for a condition number of 1."""


@dataclass(frozen=True)
class Noisy:
    """Numbers, and how far float32 arithmetic may have moved them."""

    values: Float64s
    noise: Float64s

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.values.shape

    def __add__(self, other: "Noisy") -> "Noisy":
        """Add."""
        return _operation(self.values + other.values, self.noise + other.noise)

    def __sub__(self, other: "Noisy") -> "Noisy":
        """Subtract."""
        return _operation(self.values - other.values, self.noise + other.noise)

    def __mul__(self, other: "Noisy") -> "Noisy":
        """Multiply."""
        moved = self.noise * np.abs(other.values) + other.noise * np.abs(self.values)
        return _operation(self.values * other.values, moved)


def _operation(values: Float64s, noise: Float64s) -> Noisy:
    """Return the result of one operation, which is rounded itself."""
    return Noisy(values, noise + operation_error(values))


class InFloat32(Floats):
    """Arrays of `Noisy`."""

    @staticmethod
    def of(values: Float64s) -> Noisy:
        """Return given numbers."""
        return Noisy(values, np.zeros(1))

    @staticmethod
    def map(x: Noisy, change: Callable[[Array], Array]) -> Noisy:
        """Reshape or select."""
        return Noisy(change(x.values), change(np.broadcast_to(x.noise, x.shape)))

    @classmethod
    def sum(cls, x: Noisy, axes: Axes) -> Noisy:
        """Sum along axes, which stay."""
        error = float32_noise(count_along(x.shape, axes))
        terms = cls.map(x, lambda each: each.sum(axis=axes, keepdims=True))
        sizes = np.abs(x.values).sum(axis=axes, keepdims=True)
        return Noisy(terms.values, terms.noise + error * sizes)

    @staticmethod
    def over(x: Noisy, count: int) -> Noisy:
        """Divide by an integer."""
        return Noisy(x.values / count, x.noise / count)

    @staticmethod
    def inverse_root(x: Noisy) -> Noisy:
        """Return 1/sqrt(x), by two divisions and a root."""
        r = 1 / np.sqrt(x.values)
        return Noisy(r, x.noise * r / (2 * x.values) + 4 * operation_error(r))

    @staticmethod
    def sigmoid(x: Noisy) -> Noisy:
        """Return 1/(1 + exp(-x))."""
        sigma = 1 / (1 + np.exp(-x.values))
        own = GATE_ERROR * sigma * (1 + np.abs(x.values) * (1 - sigma))
        return Noisy(sigma, own + x.noise * sigma * (1 - sigma))


def by_recipe(
    output: Node, rounded: Collection[Node], given: Given, kind: str, to: str
) -> RecipeResult:
    """Return an output in the type `to`, with some steps rounded to the type `kind`."""
    decided: Any = True

    def rounding(number: Noisy, kind: str) -> Noisy:
        nonlocal decided
        values, known = round_decided(number.values, number.noise, kind)
        decided = decided & known
        return InFloat32.of(values)

    def change(node: Node, number: Noisy) -> Noisy:
        return rounding(number, kind) if node in rounded else number

    with np.errstate(all="ignore"):
        result = rounding(evaluate([output], InFloat32, given, change)[output], to)
    return RecipeResult(result.values, np.broadcast_to(decided, result.shape))
