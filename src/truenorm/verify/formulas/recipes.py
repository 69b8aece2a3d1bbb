"""Results by recipes: which steps are rounded to 16 bits, and which elements float32 decides.

Kernels compute in float32, whose errors decide a rounding of a number next to a midpoint. An
arithmetic of numbers with their errors says which elements these are; they are undecided.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.formulas.answers import Given
from truenorm.verify.formulas.arithmetic import Axes, Floats, count_along, evaluate
from truenorm.verify.formulas.functions import FUNCTIONS
from truenorm.verify.formulas.graph import Node
from truenorm.verify.formulas.rounding import float32_noise, operation_error, round_decided
from truenorm.verify.operation import RecipeResult
from truenorm.verify.types import Array, Float64s, unit_roundoff

FUNCTION_ERROR = 8 * unit_roundoff("float32")
"""The relative error of a function in float32, for a condition number of 1."""


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
    def function(name: str, x: Noisy) -> Noisy:
        """Return a function of each number, with an error of a few roundings of x and of it."""
        values, slope = FUNCTIONS[name].floats(x.values), np.abs(FUNCTIONS[name].slope(x.values))
        own = FUNCTION_ERROR * (np.abs(values) + np.abs(x.values) * slope)
        return Noisy(values, own + x.noise * slope)

    @staticmethod
    def div(x: Noisy, y: Noisy) -> Noisy:
        """Divide."""
        values = x.values / y.values
        return _operation(values, (x.noise + np.abs(values) * y.noise) / np.abs(y.values))

    @staticmethod
    def abs(x: Noisy) -> Noisy:
        """Return magnitudes."""
        return Noisy(np.abs(x.values), x.noise)

    @staticmethod
    def largest(x: Noisy, axes: Axes) -> Noisy:
        """Return the largest element along axes, which stay."""
        noise = np.broadcast_to(x.noise, x.shape).max(axis=axes, keepdims=True)
        return Noisy(x.values.max(axis=axes, keepdims=True), noise)

    @staticmethod
    def compare(x: Noisy, y: Noisy, how: str) -> Noisy:
        """Return 1 where a comparison is true, else 0."""
        return InFloat32.of(Floats.compare(x.values, y.values, how))

    @staticmethod
    def is_true(condition: Noisy) -> NDArray[np.bool_]:
        """Return where a condition is 1."""
        return condition.values > 0.5

    @staticmethod
    def where(mask: NDArray[np.bool_], x: Noisy, y: Noisy) -> Noisy:
        """Select numbers."""
        return Noisy(np.where(mask, x.values, y.values), np.where(mask, x.noise, y.noise))


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
