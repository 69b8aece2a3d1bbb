"""A number that carries its derivative, both as rigorous enclosures (balls of python-flint).

NumPy runs a function on arrays of such numbers as on any objects: it calls operators element by
element, and for np.exp(x) the method exp of each element. Jets only check gradients: no gradient
of the package is computed by them.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from flint import arb
from numpy.typing import NDArray

from truenorm.gradient_check.problem import Array

# ruff: noqa: ARG005, D102, D105
# Operators and elementary functions need no docstrings.


class UndecidedError(ArithmeticError):
    """A comparison of overlapping balls, whose outcome is unknown."""


def _operator(operate: Callable[["Jet", "Jet"], Any]) -> Callable[["Jet", Any], Any]:
    """Return a binary operator that also takes floats and integers, as exact numbers."""

    def operator(self: "Jet", other: Any) -> Any:
        if not isinstance(other, Jet):
            number = _number(other)
            if number is None:
                return NotImplemented
            other = Jet(number)
        return operate(self, other)

    return operator


def _function(value: Callable[[Any], Any], slope: Callable[..., Any]) -> Callable[["Jet"], "Jet"]:
    """Return an elementary function; ``slope(dx, x, y)`` is the slope of y = value(x)."""

    def function(self: "Jet") -> "Jet":
        y = value(self.value)
        return Jet(y, slope(self.slope, self.value, y))

    return function


class Jet:
    """A value and its derivative along one direction.

    Floats and integers in the function are exact. Operations that would lose the derivative, such
    as a cast to float, raise TypeError. `branched` is set by comparisons and by rounding to an
    integer: a function without them is smooth, and its derivative that of its program.
    """

    __slots__ = ("slope", "value")
    branched: ClassVar[bool] = False
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, value: Any, slope: Any = 0) -> None:
        self.value = value
        self.slope = slope

    def __neg__(self) -> "Jet":
        return Jet(-self.value, -self.slope)

    def __pos__(self) -> "Jet":
        return self

    @_operator
    def __add__(self, other: "Jet") -> "Jet":
        return Jet(self.value + other.value, self.slope + other.slope)

    @_operator
    def __sub__(self, other: "Jet") -> "Jet":
        return Jet(self.value - other.value, self.slope - other.slope)

    @_operator
    def __mul__(self, other: "Jet") -> "Jet":
        slope = self.slope * other.value + self.value * other.slope
        return Jet(self.value * other.value, slope)

    @_operator
    def __truediv__(self, other: "Jet") -> "Jet":
        quotient = self.value / other.value
        return Jet(quotient, (self.slope - quotient * other.slope) / other.value)

    def __pow__(self, exponent: Any) -> Any:
        if isinstance(exponent, Jet):
            return (self.log() * exponent).exp()
        number = _number(exponent)
        if number is None:
            return NotImplemented
        if number == 2:  # the most frequent exponent
            return self * self
        if number == 0.5:
            return self.sqrt()
        if number == -0.5:
            return 1 / self.sqrt()
        return Jet(self.value**number, number * self.value ** (number - 1) * self.slope)

    __radd__ = __add__
    __rmul__ = __mul__
    __rsub__ = _operator(lambda self, other: other - self)
    __rtruediv__ = _operator(lambda self, other: other / self)
    __rpow__ = _operator(lambda self, other: other**self)

    def __abs__(self) -> "Jet":
        return -self if self < 0 else self

    def __lt__(self, other: Any) -> bool:
        return self._order(other) < 0

    def __gt__(self, other: Any) -> bool:
        return self._order(other) > 0

    __le__, __ge__ = __lt__, __gt__  # numbers that may be equal raise UndecidedError

    def __eq__(self, other: object) -> bool:
        return self is other or (self._order(other) == 0)

    def __ne__(self, other: object) -> bool:
        return self is not other and self._order(other) != 0

    def _order(self, other: Any) -> int:
        """Return -1 if this is below another number and 1 if above, or raise UndecidedError."""
        Jet.branched = True
        difference = self.value - (other.value if isinstance(other, Jet) else _number(other))
        if difference > 0:
            return 1
        if difference < 0:
            return -1
        raise UndecidedError(
            "a comparison (max, where, abs, ...) of numbers that are equal, or too close to tell: "
            "there the derivative may jump"
        )

    def __bool__(self) -> bool:
        return self._order(0) != 0

    def __float__(self) -> float:
        raise TypeError("forward casts its numbers to a fixed type, which loses the derivative")

    def __floor__(self) -> "Jet":
        """Return the integer below; raise UndecidedError if the number may be an integer."""
        Jet.branched = True
        level = self.value.floor()
        if not (level.is_integer() and level < self.value):
            raise UndecidedError("floor, ceil or round of a number at a step: there it jumps")
        return Jet(level, arb(0))

    def __ceil__(self) -> "Jet":
        return -(-self).__floor__()

    def __trunc__(self) -> "Jet":
        return self.__floor__() if self > 0 else self.__ceil__()

    def rint(self) -> "Jet":
        return Jet(self.value + 0.5).__floor__()

    def conjugate(self) -> "Jet":
        """Return the number itself, which is real. NumPy's var calls this."""
        return self

    real = property(conjugate)

    sqrt = _function(arb.sqrt, lambda dx, x, y: dx / (2 * y))
    exp = _function(arb.exp, lambda dx, x, y: dx * y)
    expm1 = _function(arb.expm1, lambda dx, x, y: dx * x.exp())
    log = _function(arb.log, lambda dx, x, y: dx / x)
    log1p = _function(arb.log1p, lambda dx, x, y: dx / (1 + x))
    sin = _function(arb.sin, lambda dx, x, y: dx * x.cos())
    cos = _function(arb.cos, lambda dx, x, y: -dx * x.sin())
    tanh = _function(arb.tanh, lambda dx, x, y: dx * (1 - y * y))
    erf = _function(arb.erf, lambda dx, x, y: dx * (2 * (-x * x).exp() / arb.pi().sqrt()))


def jets_of(values: Array, slopes: NDArray[np.float64]) -> NDArray[Any]:
    """Return an array of jets with exact values and slopes."""
    jets = np.empty(values.shape, dtype=object)
    for position, (value, slope) in enumerate(zip(values.flat, slopes.flat, strict=True)):
        jets.flat[position] = Jet(arb(float(value)), arb(float(slope)))
    return jets


def _number(other: Any) -> Any:
    """Return a float or an integer as an exact ball, or None for any other type."""
    try:
        if isinstance(other, int):
            return arb(other)
        # NumPy scalars convert, too; arrays apply the operator element by element.
        return None if isinstance(other, np.ndarray) else arb(float(other))
    except (TypeError, ValueError):
        return None
