"""Sums on the lattice rounded: known to half the units that their terms were rounded to."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat, round_ratio
from truenorm.kernels.ground import SLACK
from truenorm.kernels.lattice.digits import BITS, Number
from truenorm.kernels.rounding import Tested, round_to, same_roundings
from truenorm.kernels.storage import widen

__all__ = ["columns_and_error", "round_columns"]

Float64 = NDArray[np.float64]

OF_FLOAT64 = 2.0**-46
"""More than the relative error of a column of less than 30 digits as a float64 (L5)."""


def columns_and_error(terms: Number) -> tuple[Number, int]:
    """Part the sums of terms from the sum of their units, which tells the error (L4).

    Each term is off by at most half its unit; the error is in units of the first place.
    """
    last = terms.digits.shape[1] - 1
    units = terms.integers(np.array([last]))[0]
    return Number(terms.first, terms.digits[:, :last]), -(-units // 2)


def round_columns(
    number: Number, error: int, divide_by: int, target: FloatFormat
) -> tuple[Float64, NDArray[np.intp]]:
    """Return columns, divided and rounded, and which of them are undecided.

    Each is known to `error` units of the first place. Nearly all are settled as float64 numbers,
    the others in integers.
    """
    with np.errstate(all="ignore"):  # of overflow, for instance: infinity is the right answer
        tested = _tested(number, error, divide_by, target)
    values = widen(tested.values, target)
    undecided = []
    left = np.flatnonzero(tested.refused)
    for j, middle in zip(left.tolist(), number.integers(left), strict=True):
        found = _Bracket(middle, error, BITS * number.first, divide_by, target)
        values[j] = found.value
        if not found.is_decided:
            undecided.append(j)
    return values, np.array(undecided, np.intp)


def _tested(number: Number, error: int, divide_by: int, target: FloatFormat) -> Tested:
    """Round columns as float64 numbers, where that decides."""
    z = np.zeros(number.digits.shape[1])
    for digits in number.digits[::-1]:
        # No cancellation: what is below a digit that is not zero is less than its unit.
        z *= 2.0**BITS
        z += digits
    unit = math.ldexp(1.0, BITS * number.first)
    z *= unit / divide_by
    bound = np.abs(z)
    bound *= OF_FLOAT64
    bound += SLACK * float(error) * unit / divide_by
    lower = round_to(z - bound, target)
    z += bound
    return same_roundings(lower, round_to(z, target))


@dataclass
class _Bracket:
    """A column between two ratios, in integers (L6)."""

    middle: int
    error: int
    exponent: int
    divide_by: int
    target: FloatFormat

    def __post_init__(self) -> None:
        self._low, self._high = (
            self._rounded(self.middle + change) for change in (-self.error, self.error)
        )

    def _rounded(self, value: int) -> float:
        up, down = max(0, self.exponent), max(0, -self.exponent)
        return round_ratio(value << up, self.divide_by << down, self.target)

    @property
    def is_decided(self) -> bool:
        """Whether everything in it rounds alike, sign included: -0 is no +0."""
        return self._low.hex() == self._high.hex()

    @property
    def value(self) -> float:
        """What it rounds to; if undecided, what the zero or the tie in it does."""
        if self.is_decided:
            return self._low
        if abs(self.middle) <= self.error:
            return 0.0
        infinite = [end for end in (self._low, self._high) if math.isinf(end)]
        if infinite:  # beside the largest number the even one is infinite
            return infinite[0]
        tie = (Fraction(self._low) + Fraction(self._high)) / 2
        return round_ratio(tie.numerator, tie.denominator, self.target)
