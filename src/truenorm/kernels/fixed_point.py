"""The unit that the terms dy*xhat of a row are rounded to, decided by that row alone (L1).

It lies BELOW bits under the largest term that the row can have, which is found from exponents of
exact quantities: no sum is rounded for it, so that every backend finds the same.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import ExactRow, FloatFormat, round_ratio
from truenorm.kernels.call import Call, Norm
from truenorm.kernels.rounding import Tested, round_to, same_roundings
from truenorm.kernels.rows import Stored, widen
from truenorm.kernels.tuning import BELOW, HIGH, LOWEST, SLACK

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]

NO_TERMS = np.iinfo(np.int64).min
"""In place of the unit of a row whose terms are all zero."""

NO_LIMIT = 2**20
"""An exponent above all others."""


def half_exponent_of_size(size: int) -> int:
    """Return the smallest h with sqrt(size) <= 2**h: |xhat| is at most that."""
    return ((size - 1).bit_length() + 1) // 2


def half_exponent_of_eps(eps: float) -> int:
    """Return an h with 1/sqrt(eps) <= 2**h: r is at most that."""
    return -((math.frexp(eps)[1] - 1) // 2) if eps > 0 else NO_LIMIT


def units(dy: Float64, x: Float64, eps: float, norm: Norm) -> Integers:
    """Return e for each row of finite numbers: its terms are rounded to multiples of 2**e.

    |dy| < 2**a, |c| <= 2**b and (L1): |dy*xhat| < 2**(a + min(b + h_eps, h_size)).
    """
    largest = np.abs(dy).max(axis=1)
    # The difference of two float32 numbers as a float64 is rounded, but in one way only.
    reach = x.max(axis=1) - x.min(axis=1) if norm.centred else np.abs(x).max(axis=1)
    of_xhat = np.minimum(
        np.frexp(reach)[1].astype(np.int64) + half_exponent_of_eps(eps),
        half_exponent_of_size(x.shape[1]),
    )
    found = np.maximum(np.frexp(largest)[1] + of_xhat - BELOW, LOWEST)
    return np.where((largest == 0) | (reach == 0), NO_TERMS, found)


BITS = 32
"""Of a digit. A float64 adds up 2**20 of them exactly, an int64 2**30."""

MASK = np.int64(2**BITS - 1)
HALF = np.int64(2 ** (BITS - 1))


class FixedPoint(NamedTuple):
    """One integer a column, in units of 2**(BITS*first), in its one form.

    Every digit lies in [-2**31, 2**31), and neither the first place nor the last is zero in all
    columns: equal numbers have equal digits.
    """

    first: int
    limbs: Integers
    """Of shape (places, columns), the lowest place first."""

    @classmethod
    def of_core(cls, found: tuple[int, bytearray], columns: int) -> "FixedPoint":
        """Return a number that the C core computed."""
        first, digits = found
        return cls(first, np.frombuffer(digits, np.int64).reshape(-1, columns))

    def plus(self, other: "FixedPoint") -> "FixedPoint":
        """Return the sum of two."""
        if not len(self.limbs) or not len(other.limbs):
            return self if len(self.limbs) else other
        first = min(self.first, other.first)
        places = max(self.first + len(self.limbs), other.first + len(other.limbs)) - first
        # One place takes the carries of two numbers.
        total = np.zeros((places + 1, self.limbs.shape[1]), np.int64)
        for each in (self, other):
            total[each.first - first :][: len(each.limbs)] += each.limbs
        return canonical(first, total)

    def without(self, columns: NDArray[np.bool_]) -> "FixedPoint":
        """Return it with zeros in some columns."""
        if not columns.any() or not len(self.limbs):
            return self
        return canonical(self.first, np.where(columns, 0, self.limbs))

    def integers(self, columns: NDArray[np.intp]) -> list[int]:
        """Return some columns as integers, in units of the first place."""
        total = [0] * len(columns)
        for place in self.limbs[::-1, columns].tolist():
            total = [(above << BITS) + digit for above, digit in zip(total, place, strict=True)]
        return total


class FixedPointSum:
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

    def put(self, number: FixedPoint, columns: Any = ...) -> None:
        """Add a number, to some of the columns if it has no more."""
        for k, digits in enumerate(number.limbs):
            self._at(number.first + k)[columns] += digits

    def merge(self, other: "FixedPointSum") -> None:
        """Add the sums over other rows."""
        for place, digits in other._places.items():
            self._at(place)[...] += digits

    def number(self) -> FixedPoint:
        """Return the sums in their one form."""
        if not self._places:
            return FixedPoint(0, np.zeros((0, self._columns), np.int64))
        first, last = min(self._places), max(self._places)
        nothing = np.zeros(self._columns, np.int64)
        # Two places take the carries of all others.
        digits = [self._places.get(place, nothing) for place in range(first, last + 3)]
        return canonical(first, np.stack(digits))

    def as_fixed_point(self) -> "FixedPointSum":
        """Return itself: nothing is lost here."""
        return self

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums; none is undecided."""
        first, limbs = number = self.number()
        up, under = max(0, BITS * first), 1 << max(0, -BITS * first)
        values = [
            round_ratio(total << up, under, target)
            for total in number.integers(np.arange(limbs.shape[1]))
        ]
        return Tested(round_to(np.array(values), target), np.zeros(self._columns, bool))

    def _at(self, place: int) -> Integers:
        """Return the digits of a place, to add to."""
        if place not in self._places:
            self._places[place] = np.zeros(self._columns, np.int64)
        return self._places[place]


def canonical(first: int, digits: Integers) -> FixedPoint:
    """Carry from place to place, drop empty places at both ends; digits are used up."""
    for k in range(len(digits) - 1):
        carry = digits[k] + HALF
        carry >>= BITS
        digits[k + 1] += carry
        carry <<= BITS
        digits[k] -= carry
    used = np.flatnonzero(digits.any(axis=1))
    if not len(used):
        return FixedPoint(0, digits[:0])
    start, stop = int(used[0]), int(used[-1]) + 1
    return FixedPoint(first + start, np.ascontiguousarray(digits[start:stop]))


def _times_power(values: Float64, exponent: int) -> Float64:
    """Multiply by 2**exponent, in two steps where one factor would leave the range."""
    if abs(exponent) < 1000:
        return values * 2.0**exponent
    half = exponent // 2
    return values * 2.0**half * 2.0 ** (exponent - half)


OF_FLOAT64 = 2.0**-46
"""More than the relative error of a column of less than 30 digits as a float64 (L5)."""


def columns_and_error(terms: FixedPoint) -> tuple[FixedPoint, int]:
    """Part the sums of terms from the sum of their units, which tells the error (L4).

    Each term is off by at most half its unit; the error is in units of the first place.
    """
    last = terms.limbs.shape[1] - 1
    units = terms.integers(np.array([last]))[0]
    return FixedPoint(terms.first, terms.limbs[:, :last]), -(-units // 2)


def round_columns(
    number: FixedPoint, error: int, divide_by: int, target: FloatFormat
) -> tuple[Float64, NDArray[np.intp]]:
    """Return columns, divided and rounded, and which of them are undecided.

    Each is known to `error` units of the first place. Nearly all are settled as float64 numbers,
    the others in integers.
    """
    with np.errstate(all="ignore"):  # of overflow, for instance: infinity is the right answer
        tested = _tested(number, error, divide_by, target)
    values = widen(tested.values, target)
    undecided = []
    left = np.flatnonzero(tested.undecided)
    for j, middle in zip(left.tolist(), number.integers(left), strict=True):
        found = _Bracket(middle, error, BITS * number.first, divide_by, target)
        values[j] = found.value
        if not found.is_decided:
            undecided.append(j)
    return values, np.array(undecided, np.intp)


def _tested(number: FixedPoint, error: int, divide_by: int, target: FloatFormat) -> Tested:
    """Round columns as float64 numbers, where that decides."""
    z = np.zeros(number.limbs.shape[1])
    for digits in number.limbs[::-1]:
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


RowStatus = NDArray[np.uint8]


class DgammaTotal(Protocol):
    """Sums of terms over some rows."""

    def merge(self, other: Any, /) -> None:
        """Add those over other rows, which are used up."""

    def number(self) -> FixedPoint:
        """Return them in their one form; the last column is the sum of all units."""


Binned = TypeVar("Binned", bound=DgammaTotal)


class FixedPointDgamma(Protocol[Binned]):
    """How a backend sums dgamma of a call at level 1 on the lattice."""

    def sums(self) -> Binned:
        """Return sums over no rows."""

    def add(self, dy: Stored, x: Stored, status: RowStatus | None, sums: Binned) -> None:
        """Add a block of rows with a result and finite dy; or those of it that are such."""

    def compute(
        self,
        level: Any,
        dy: Stored,
        x: Stored,
        saved: Float64,
        dx: Stored,
        sums: tuple[Any, Binned],
        status: RowStatus,
    ) -> bool:
        """Do what the level's `look` does with the first of the sums, and add to the second."""


class AfterLevel:
    """FixedPointDgamma that are added when the level is done with a block."""

    add: Any

    def compute(
        self,
        level: Any,
        dy: Stored,
        x: Stored,
        saved: Float64,
        dx: Stored,
        sums: tuple[Any, Any],
        status: RowStatus,
    ) -> bool:
        """Do what the level's `look` does with the first of the sums, and add to the second."""
        left: bool = level.compute(dy, x, saved, dx, sums[0], status)
        self.add(dy, x, status if left else None, sums[1])
        return left


class DgammaSum:
    """The sums of terms, and beside the columns the units that were rounded to."""

    def __init__(self, size: int) -> None:
        self._digits = FixedPointSum(size + 1)

    def add(self, high: Float64, low: Float64, unit: int, rows: int) -> None:
        """Add the sums of terms over at most MOST_ROWS rows that have the same unit."""
        for part, exponent, counted in ((high, unit + HIGH, 0), (low, unit, rows)):
            self._digits.deposit(np.append(part.astype(np.int64), counted), exponent)

    def merge(self, other: "DgammaSum") -> None:
        """Add the sums over other rows."""
        self._digits.merge(other._digits)

    def add_rows(self, high: Float64, low: Float64, units: Integers) -> None:
        """Add the terms of at most MOST_ROWS rows."""
        for unit in np.unique(units[units != NO_TERMS]).tolist():
            rows = units == unit
            self.add(high[rows].sum(axis=0), low[rows].sum(axis=0), unit, int(rows.sum()))

    def number(self) -> FixedPoint:
        """Return the sums in their one form; the last column is the sum of all units."""
        return self._digits.number()


def exact_terms(
    dy: Float64, x: Float64, columns: NDArray[np.intp], unit: int, call: Call
) -> tuple[list[float], list[float]]:
    """Return some terms of a row in integers, rounded to nearest, ties to even: high and low."""
    row = ExactRow(x.tolist(), call.eps, is_centred=call.norm.centred)
    found = [
        _term(row, j, slope, unit)
        for j, slope in zip(columns.tolist(), dy[columns].tolist(), strict=True)
    ]
    low = [term & (2**HIGH - 1) for term in found]
    return [float(term >> HIGH) for term in found], [float(part) for part in low]


def _term(row: ExactRow, j: int, dy: float, unit: int) -> int:
    over, under = dy.as_integer_ratio()
    up, down = max(0, -unit), max(0, unit)
    return row.root.nearest(over * row.centred[j] << up, under * row.scale << down)
