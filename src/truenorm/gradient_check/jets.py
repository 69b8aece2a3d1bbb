"""A number that carries its derivative, both as rigorous enclosures (balls of python-flint).

NumPy runs a function on arrays of such numbers as on any objects: it calls operators element by
element, and for np.exp(x) the method exp of each element. Jets only check gradients: no gradient
of the package is computed by them.
"""

from typing import Any, ClassVar

import numpy as np
from flint import arb
from numpy.typing import NDArray

from truenorm.gradient_check.problem import Array

# ruff: noqa: D102, D105
# Operators and elementary functions need no docstrings.


class UndecidedError(ArithmeticError):
    """A comparison of overlapping balls, whose outcome is unknown."""


class Jet:
    """A value and its derivative along one direction.

    Floats and integers in the function are exact. Operations that would lose the derivative, such
    as a cast to float, raise TypeError.
    """

    __slots__ = ("slope", "value")
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, value: Any, slope: Any = 0) -> None:
        self.value = value
        self.slope = slope

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Jet):
            return Jet(self.value + other.value, self.slope + other.slope)
        number = _number(other)
        return NotImplemented if number is None else Jet(self.value + number, self.slope)

    __radd__ = __add__

    def __neg__(self) -> "Jet":
        return Jet(-self.value, -self.slope)

    def __pos__(self) -> "Jet":
        return self

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Jet):
            return Jet(self.value - other.value, self.slope - other.slope)
        number = _number(other)
        return NotImplemented if number is None else Jet(self.value - number, self.slope)

    def __rsub__(self, other: Any) -> Any:
        number = _number(other)
        return NotImplemented if number is None else Jet(number - self.value, -self.slope)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Jet):
            slope = self.slope * other.value + self.value * other.slope
            return Jet(self.value * other.value, slope)
        number = _number(other)
        return NotImplemented if number is None else Jet(self.value * number, self.slope * number)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Jet):
            quotient = self.value / other.value
            return Jet(quotient, (self.slope - quotient * other.slope) / other.value)
        number = _number(other)
        return NotImplemented if number is None else Jet(self.value / number, self.slope / number)

    def __rtruediv__(self, other: Any) -> Any:
        number = _number(other)
        return NotImplemented if number is None else Jet(number) / self

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

    def __rpow__(self, base: Any) -> Any:
        number = _number(base)
        return NotImplemented if number is None else Jet(number) ** self

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

    def sqrt(self) -> "Jet":
        root = self.value.sqrt()
        return Jet(root, self.slope / (2 * root))

    def exp(self) -> "Jet":
        power = self.value.exp()
        return Jet(power, self.slope * power)

    def expm1(self) -> "Jet":
        return Jet(self.value.expm1(), self.slope * self.value.exp())

    def log(self) -> "Jet":
        return Jet(self.value.log(), self.slope / self.value)

    def log1p(self) -> "Jet":
        return Jet(self.value.log1p(), self.slope / (1 + self.value))

    def sin(self) -> "Jet":
        return Jet(self.value.sin(), self.slope * self.value.cos())

    def cos(self) -> "Jet":
        return Jet(self.value.cos(), -self.slope * self.value.sin())

    def tanh(self) -> "Jet":
        t = self.value.tanh()
        return Jet(t, self.slope * (1 - t * t))

    def erf(self) -> "Jet":
        density = 2 * (-self.value * self.value).exp() / arb.pi().sqrt()
        return Jet(self.value.erf(), self.slope * density)


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
