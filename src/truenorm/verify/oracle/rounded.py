"""Numbers of the form that results have, each rounded once and exactly, and what that left over.

A number is first bracketed by two float64 numbers. Nearly always they are the same, and tell how
it is rounded to a narrower type; what they do not decide, integers do.
"""

from collections.abc import Sequence
from math import frexp, isfinite
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat, InverseRoot, Term, round_sum_of_roots
from truenorm.verify.types import Float64s

ONE = InverseRoot(1, 1)
BITS = 128  # of a root, for the bracket: many more than float64 has
UNDECIDED = (float("-inf"), float("inf"))


class Number(Protocol):
    """A real number that can be rounded."""

    def bracket(self) -> tuple[float, float]:
        """Return float64 numbers that it is between, once it is rounded to float64 itself."""

    def round_to(self, target: FloatFormat) -> float:
        """Return it, rounded once to a type."""

    def less(self, over: int, under: int, up: int, down: int) -> "Number":
        """Return what is left when over/under is taken away, times 2**up/2**down."""


class Known(NamedTuple):
    """A number that is no real one: NaN, or an infinity."""

    value: float

    def bracket(self) -> tuple[float, float]:
        """Say nothing: it is not between numbers."""
        return UNDECIDED

    def round_to(self, target: FloatFormat) -> float:  # noqa: ARG002 (the same in every type)
        """Return it."""
        return self.value

    def less(self, *_: int) -> "Known":
        """Return it, from which nothing can be taken away."""
        return self


class Line(NamedTuple):
    """(a*r + b)/denominator, with the root r of a row."""

    root: InverseRoot
    a: int
    b: int
    denominator: int

    @classmethod
    def of(cls, term: Term) -> "Line":
        """Return a single term of a sum."""
        return cls(term.root, term.numerator, 0, term.denominator)

    def bracket(self) -> tuple[float, float]:
        """Divide integers, which Python rounds once and to nearest."""
        if self.a == 0:
            place, below = 0, 0
        else:
            place = max(0, BITS - self.root.magnitude)
            below = self.root.scaled(place)
        shift, denominator = self.b << place, self.denominator << place
        try:
            low = (self.a * below + shift) / denominator
            high = (self.a * (below + 1) + shift) / denominator
        except OverflowError:
            return UNDECIDED
        return low, high

    def round_to(self, target: FloatFormat) -> float:
        """Round by integers."""
        return self.root.round_linear(self.a, self.b, self.denominator, target)

    def less(self, over: int, under: int, up: int, down: int) -> "Line":
        """Take away."""
        left = self.b * under - over * self.denominator
        return Line(self.root, self.a * under << up, left << up, self.denominator * under << down)


class Sum(NamedTuple):
    """A sum of roots, each times a ratio: one term for each row."""

    terms: list[Term]

    def bracket(self) -> tuple[float, float]:
        """Round by integers, twice the same: they decide such sums quickly."""
        value = self.round_to(FLOAT64)
        return value, value

    def round_to(self, target: FloatFormat) -> float:
        """Round by integers."""
        return round_sum_of_roots(self.terms, target)

    def less(self, over: int, under: int, up: int, down: int) -> "Sum":
        """Take away."""
        terms = [*self.terms, Term(-over, under, ONE)]
        return Sum([Term(over << up, under << down, root) for over, under, root in terms])


def rounded(numbers: Sequence[Number], target: FloatFormat) -> Float64s:
    """Return a row (value, rest) for each number: exact = value + rest*ulp(value).

    The value is correctly rounded, and |rest| <= 1/2. Whether rest is 0, 1/2 or neither is exact;
    else it may be off by a rounding of float64 at the value, 2**-30 for float32.
    """
    brackets = np.array([number.bracket() for number in numbers], np.float64).reshape(-1, 2)
    found, decided = _told_by_float64(brackets, target)
    for place in np.flatnonzero(~decided).tolist():
        low, high = brackets[place].tolist()
        in_float64 = target == FLOAT64 and low == high and low != 0
        value = low if in_float64 else numbers[place].round_to(target)
        found[place] = value, _rest(numbers[place], value, target)
    return found


def _told_by_float64(
    brackets: Float64s, target: FloatFormat
) -> tuple[Float64s, NDArray[np.bool_]]:
    """Round again what was rounded to float64, and tell where that is the same as rounding once.

    Numbers of a narrower type, and the points half way between them, are float64 numbers. So the
    exact answer is on the same side of each as its rounding to float64, unless that is one of
    them.
    """
    wide = brackets[:, 0]
    decided = (wide == brackets[:, 1]) & (np.abs(wide) < 2.0 ** (target.limit - 1))
    if target.precision >= FLOAT64.precision:
        decided[:] = False
    wide = np.where(decided, wide, 0.0)
    # From here on nothing is rounded but by `rint`: float64 has the digits to spare.
    places = _places(wide, target)
    digits = np.ldexp(wide, -places)
    whole = np.rint(digits)
    # In places of the number, not of what it is rounded to: they differ below a power of two.
    decided &= (digits != whole) & (np.abs(digits - whole) != 0.5)
    values = np.copysign(np.ldexp(whole, places), wide)
    rests = np.ldexp(wide - values, -_places(values, target))
    return np.stack([values, rests], axis=-1), decided


def _places(values: Float64s, target: FloatFormat) -> NDArray[np.intp]:
    """Return the exponent of an ulp at each finite value."""
    _, exponents = np.frexp(values)
    places = np.maximum(exponents - target.precision, target.quantum)
    return np.where(values == 0, target.quantum, places)


def _rest(number: Number, value: float, target: FloatFormat) -> float:
    """Return what is left of a number beyond its rounded value, in ulp of that."""
    if not isfinite(value):
        return 0.0
    place = max(frexp(value)[1] - target.precision, target.quantum) if value else target.quantum
    left = number.less(*value.as_integer_ratio(), max(0, -place), max(0, place))
    low, high = left.bracket()
    # A tie, or nothing left, is for integers to tell.
    return low if low == high and abs(low) not in (0.0, 0.5) else left.round_to(FLOAT64)
