"""Numbers with errors: how far roundings of all steps before a number may move it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from truenorm.verify.formulas.arithmetic import Axes, Floats, Mask, count_along, where_parts
from truenorm.verify.formulas.functions import FUNCTIONS
from truenorm.verify.types import Array, Float64s


@dataclass(frozen=True)
class Erring:
    """Numbers, and their errors to first order."""

    values: Float64s
    error: Float64s

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.values.shape


class RunningErrors(Floats):
    """Arrays of `Erring`, with errors in units of u: each step is rounded once.

    A subclass may have other errors of single steps: `own` of a rounded number, `of_sum` of each
    term of a sum, and multiples of them in a root and a function.
    """

    own: Callable[[Float64s], Float64s] = staticmethod(lambda values: np.abs(values))
    of_sum: Callable[[int], float] = staticmethod(lambda _: 1.0)
    of_root, of_function = 2.0, 1.0
    where = staticmethod(where_parts)

    @classmethod
    def _rounded(cls, values: Float64s, moved: Float64s) -> Erring:
        return Erring(values, moved + cls.own(values))

    @staticmethod
    def of(values: Float64s) -> Erring:
        """Return exact numbers."""
        return Erring(np.asarray(values), np.zeros(1))

    @classmethod
    def add(cls, x: Erring, y: Erring) -> Erring:
        """Add."""
        return cls._rounded(x.values + y.values, x.error + y.error)

    @classmethod
    def sub(cls, x: Erring, y: Erring) -> Erring:
        """Subtract."""
        return cls._rounded(x.values - y.values, x.error + y.error)

    @classmethod
    def mul(cls, x: Erring, y: Erring) -> Erring:
        """Multiply."""
        moved = x.error * np.abs(y.values) + y.error * np.abs(x.values)
        return cls._rounded(x.values * y.values, moved)

    @classmethod
    def div(cls, x: Erring, y: Erring) -> Erring:
        """Divide."""
        values = x.values / y.values
        return cls._rounded(values, (x.error + np.abs(values) * y.error) / np.abs(y.values))

    @classmethod
    def over(cls, x: Erring, count: int) -> Erring:
        """Divide by an integer."""
        return cls._rounded(x.values / count, x.error / count)

    @staticmethod
    def abs(x: Erring) -> Erring:
        """Return magnitudes."""
        return Erring(np.abs(x.values), x.error)

    @classmethod
    def sum(cls, x: Erring, axes: Axes) -> Erring:
        """Sum along axes, which stay."""
        own = cls.of_sum(count_along(x.shape, axes)) * np.abs(x.values)
        terms = Erring(x.values, x.error + own)
        return cls.map(terms, lambda each: each.sum(axis=axes, keepdims=True))

    @classmethod
    def largest(cls, x: Erring, axes: Axes) -> Erring:
        """Return the largest element along axes, which stay."""
        return cls.map(x, lambda each: each.max(axis=axes, keepdims=True))

    @classmethod
    def inverse_root(cls, x: Erring) -> Erring:
        """Return 1/sqrt(x)."""
        r = 1 / np.sqrt(x.values)
        return Erring(r, x.error * r / (2 * np.abs(x.values)) + cls.of_root * cls.own(r))

    @classmethod
    def function(cls, name: str, x: Erring) -> Erring:
        """Return a function of each number; kernels compute it of a rounded number."""
        function = FUNCTIONS[name]
        values, slope = function.floats(x.values), np.abs(function.slope(x.values))
        moved = slope * (x.error + cls.of_function * np.abs(x.values))
        # The slope at infinity is 0, or infinite where the result is.
        moved = np.where(np.isinf(x.values), 0.0, moved)
        return Erring(values, moved + cls.of_function * np.abs(values))

    @classmethod
    def compare(cls, x: Erring, y: Erring, how: str) -> Erring:
        """Return 1 where a comparison is true, else 0."""
        return cls.of(Floats.compare(x.values, y.values, how))

    @staticmethod
    def is_true(condition: Erring) -> Mask:
        """Return where a condition is 1."""
        return condition.values > 0.5

    @staticmethod
    def map(x: Erring, change: Callable[[Array], Array]) -> Erring:
        """Reshape or select."""
        return Erring(change(x.values), change(np.broadcast_to(x.error, x.shape)))
