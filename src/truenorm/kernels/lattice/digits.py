"""Sums of columns as digits at fixed places: integer addition is associative.

Place k holds multiples of 2**(BITS*k). So neither the order of the rows, nor who adds them, nor in
how many parts they come can matter.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat, round_ratio
from truenorm.kernels.rounding import Tested, round_to

__all__ = ["BITS", "Digits", "Number", "canonical"]

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]

BITS = 32
"""Of a digit. A float64 adds up 2**20 of them exactly, an int64 2**30."""

MASK = np.int64(2**BITS - 1)
HALF = np.int64(2 ** (BITS - 1))


class Number(NamedTuple):
    """One integer a column, in units of 2**(BITS*first), in its one form.

    Every digit lies in [-2**31, 2**31), and neither the first place nor the last is zero in all
    columns: equal numbers have equal digits.
    """

    first: int
    digits: Integers
    """Of shape (places, columns), the lowest place first."""

    @classmethod
    def of_core(cls, found: tuple[int, bytearray], columns: int) -> "Number":
        """Return a number that the C core computed."""
        first, digits = found
        return cls(first, np.frombuffer(digits, np.int64).reshape(-1, columns))

    def plus(self, other: "Number") -> "Number":
        """Return the sum of two."""
        if not len(self.digits) or not len(other.digits):
            return self if len(self.digits) else other
        first = min(self.first, other.first)
        places = max(self.first + len(self.digits), other.first + len(other.digits)) - first
        # One place takes the carries of two numbers.
        total = np.zeros((places + 1, self.digits.shape[1]), np.int64)
        for each in (self, other):
            total[each.first - first :][: len(each.digits)] += each.digits
        return canonical(first, total)

    def without(self, columns: NDArray[np.bool_]) -> "Number":
        """Return it with zeros in some columns."""
        if not columns.any() or not len(self.digits):
            return self
        return canonical(self.first, np.where(columns, 0, self.digits))

    def integers(self, columns: NDArray[np.intp]) -> list[int]:
        """Return some columns as integers, in units of the first place."""
        total = [0] * len(columns)
        for place in self.digits[::-1, columns].tolist():
            total = [(above << BITS) + digit for above, digit in zip(total, place, strict=True)]
        return total


class Digits:
    """The sum of numbers in each column, without any error."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._places: dict[int, Integers] = {}

    def add(self, terms: Float64) -> None:
        """Add at most 2**20 rows of finite numbers; `terms` is used up."""
        largest = float(np.abs(terms).max(initial=0.0))
        place = int(np.frexp(largest)[1]) // BITS
        while largest > 0:
            digits = np.trunc(_times_power(terms, -BITS * place))
            self._at(place)[...] += digits.sum(axis=0).astype(np.int64)
            terms -= _times_power(digits, BITS * place)
            largest = float(np.abs(terms).max())
            place -= 1

    def deposit(self, values: Integers, exponent: int) -> None:
        """Add an integer to each column, in units of 2**exponent."""
        place, shift = divmod(exponent, BITS)
        low, high = (values & MASK) << shift, (values >> BITS) << shift
        self._at(place)[...] += low & MASK
        self._at(place + 1)[...] += (low >> BITS) + (high & MASK)
        self._at(place + 2)[...] += high >> BITS

    def put(self, number: Number, columns: Any = ...) -> None:
        """Add a number, to some of the columns if it has no more."""
        for k, digits in enumerate(number.digits):
            self._at(number.first + k)[columns] += digits

    def merge(self, other: "Digits") -> None:
        """Add the sums over other rows."""
        for place, digits in other._places.items():
            self._at(place)[...] += digits

    def number(self) -> Number:
        """Return the sums in their one form."""
        if not self._places:
            return Number(0, np.zeros((0, self._columns), np.int64))
        first, last = min(self._places), max(self._places)
        nothing = np.zeros(self._columns, np.int64)
        # Two places take the carries of all others.
        digits = [self._places.get(place, nothing) for place in range(first, last + 3)]
        return canonical(first, np.stack(digits))

    def as_digits(self) -> "Digits":
        """Return itself: nothing is lost here."""
        return self

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums; none is refused."""
        first, digits = number = self.number()
        up, under = max(0, BITS * first), 1 << max(0, -BITS * first)
        values = [
            round_ratio(total << up, under, target)
            for total in number.integers(np.arange(digits.shape[1]))
        ]
        return Tested(round_to(np.array(values), target), np.zeros(self._columns, bool))

    def _at(self, place: int) -> Integers:
        """Return the digits of a place, to add to."""
        if place not in self._places:
            self._places[place] = np.zeros(self._columns, np.int64)
        return self._places[place]


def canonical(first: int, digits: Integers) -> Number:
    """Carry from place to place, drop empty places at both ends; digits are used up."""
    for k in range(len(digits) - 1):
        carry = digits[k] + HALF
        carry >>= BITS
        digits[k + 1] += carry
        carry <<= BITS
        digits[k] -= carry
    used = np.flatnonzero(digits.any(axis=1))
    if not len(used):
        return Number(0, digits[:0])
    start, stop = int(used[0]), int(used[-1]) + 1
    return Number(first + start, np.ascontiguousarray(digits[start:stop]))


def _times_power(values: Float64, exponent: int) -> Float64:
    """Multiply by 2**exponent, in two steps where one factor would leave the range."""
    if abs(exponent) < 1000:
        return values * 2.0**exponent
    half = exponent // 2
    return values * 2.0**half * 2.0 ** (exponent - half)
