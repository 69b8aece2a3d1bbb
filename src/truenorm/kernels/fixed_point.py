"""Exact sums over rows in fixed point.

A fixed-point number has 32-bit limbs; sums of float64 numbers are exact in it. dbeta is such a
sum. For partial gradients dgamma is one too: the terms dy*xhat of a row are rounded to a unit
that depends on that row alone (L1). The unit follows from exponents of exact quantities, so that
every backend uses the same.
"""

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import ExactRow, FloatFormat, round_ratio
from truenorm.kernels.call import Call, Norm
from truenorm.kernels.rounding import Tested, round_to, same_roundings
from truenorm.kernels.rows import widen
from truenorm.kernels.tuning import LOW_BITS, LOWEST_UNIT, SLACK, TERM_BITS

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]

BITS = 32
"""Bits of a limb. A float64 adds up 2**20 limbs exactly, an int64 2**30."""

MASK = np.int64(2**BITS - 1)
HALF = np.int64(2 ** (BITS - 1))


class FixedPoint(NamedTuple):
    """One number per column, in units of 2**(BITS*first), in canonical form.

    Every limb is in [-2**31, 2**31), and neither the first place nor the last is zero in all
    columns: equal numbers have equal limbs.
    """

    first: int
    limbs: Integers
    """Array of shape (places, columns), the lowest place first."""

    @classmethod
    def of_core(cls, number: tuple[int, bytearray], columns: int) -> "FixedPoint":
        """Return a number computed by the C core."""
        first, limbs = number
        return cls(first, np.frombuffer(limbs, np.int64).reshape(-1, columns))

    def plus(self, other: "FixedPoint") -> "FixedPoint":
        """Return the sum of two numbers."""
        if not len(self.limbs) or not len(other.limbs):
            return self if len(self.limbs) else other
        first = min(self.first, other.first)
        places = max(self.first + len(self.limbs), other.first + len(other.limbs)) - first
        # One more place for the carries of two numbers.
        total = np.zeros((places + 1, self.limbs.shape[1]), np.int64)
        for each in (self, other):
            total[each.first - first :][: len(each.limbs)] += each.limbs
        return canonical(first, total)

    def without(self, columns: NDArray[np.bool_]) -> "FixedPoint":
        """Return the number with zeros in some columns."""
        if not columns.any() or not len(self.limbs):
            return self
        return canonical(self.first, np.where(columns, 0, self.limbs))

    def integers(self, columns: NDArray[np.intp]) -> list[int]:
        """Return some columns as integers, in units of the first place."""
        total = [0] * len(columns)
        for place in self.limbs[::-1, columns].tolist():
            total = [(above << BITS) + limb for above, limb in zip(total, place, strict=True)]
        return total


def canonical(first: int, limbs: Integers) -> FixedPoint:
    """Carry from place to place and drop empty places at both ends. Overwrites `limbs`."""
    for k in range(len(limbs) - 1):
        carry = limbs[k] + HALF
        carry >>= BITS
        limbs[k + 1] += carry
        carry <<= BITS
        limbs[k] -= carry
    used = np.flatnonzero(limbs.any(axis=1))
    if not len(used):
        return FixedPoint(0, limbs[:0])
    start, stop = int(used[0]), int(used[-1]) + 1
    return FixedPoint(first + start, np.ascontiguousarray(limbs[start:stop]))


class FixedPointSum:
    """Accumulator: the exact sum of numbers in each column."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._places: dict[int, Integers] = {}

    def add(self, terms: Float64) -> None:
        """Add at most 2**20 rows of finite numbers. Overwrites `terms`."""
        largest = float(np.abs(terms).max(initial=0.0))
        place = int(np.frexp(largest)[1]) // BITS
        while largest > 0:
            limbs = np.trunc(_times_power(terms, -BITS * place))
            self._at(place)[...] += limbs.sum(axis=0).astype(np.int64)
            terms -= _times_power(limbs, BITS * place)
            largest = float(np.abs(terms).max())
            place -= 1

    def add_integers(self, values: Integers, exponent: int) -> None:
        """Add an integer to each column, in units of 2**exponent."""
        place, shift = divmod(exponent, BITS)
        low, high = (values & MASK) << shift, (values >> BITS) << shift
        self._at(place)[...] += low & MASK
        self._at(place + 1)[...] += (low >> BITS) + (high & MASK)
        self._at(place + 2)[...] += high >> BITS

    def put(self, number: FixedPoint, columns: Any = ...) -> None:
        """Add a number to these columns."""
        for k, limbs in enumerate(number.limbs):
            self._at(number.first + k)[columns] += limbs

    def merge(self, other: "FixedPointSum") -> None:
        """Add the sums over other rows."""
        for place, limbs in other._places.items():
            self._at(place)[...] += limbs

    def number(self) -> FixedPoint:
        """Return the sums in canonical form."""
        if not self._places:
            return FixedPoint(0, np.zeros((0, self._columns), np.int64))
        first, last = min(self._places), max(self._places)
        zeros = np.zeros(self._columns, np.int64)
        # Two more places for the carries of all others.
        limbs = [self._places.get(place, zeros) for place in range(first, last + 3)]
        return canonical(first, np.stack(limbs))

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums. No column is undecided."""
        number = self.number()
        exponent = BITS * number.first
        values = [
            _round_scaled(total, exponent, 1, target)
            for total in number.integers(np.arange(self._columns))
        ]
        return Tested(round_to(np.array(values), target), np.zeros(self._columns, bool))

    def _at(self, place: int) -> Integers:
        """Return the limbs of a place, to add to."""
        if place not in self._places:
            self._places[place] = np.zeros(self._columns, np.int64)
        return self._places[place]


def _times_power(values: Float64, exponent: int) -> Float64:
    """Multiply by 2**exponent, in two steps where one factor would leave the range."""
    if abs(exponent) < 1000:
        return values * 2.0**exponent
    half = exponent // 2
    return values * 2.0**half * 2.0 ** (exponent - half)


def _round_scaled(value: int, exponent: int, divide_by: int, target: FloatFormat) -> float:
    """Round value*2**exponent/divide_by."""
    up, down = max(0, exponent), max(0, -exponent)
    return round_ratio(value << up, divide_by << down, target)


CONVERSION_ERROR = 2.0**-46
"""Bound on the relative error of a column of less than 30 limbs as a float64 (L5)."""


def columns_and_error(terms: FixedPoint) -> tuple[FixedPoint, int]:
    """Separate the sums of terms from the sum of their units, which bounds the error (L4).

    Each term is off by at most half its unit; the error is in units of the first place.
    """
    last = terms.limbs.shape[1] - 1
    units = terms.integers(np.array([last]))[0]
    return FixedPoint(terms.first, terms.limbs[:, :last]), -(-units // 2)


def round_columns(
    number: FixedPoint, error: int, divide_by: int, target: FloatFormat
) -> tuple[Float64, NDArray[np.intp]]:
    """Return the columns, divided and rounded, and the indices of undecided ones.

    Each column is known to `error` units of the first place. Nearly all are decided by float64
    arithmetic, the others in integers.
    """
    with np.errstate(all="ignore"):  # a result may overflow: infinity is correct then
        tested = _round_as_float64(number, error, divide_by, target)
    values = widen(tested.values, target)
    undecided = []
    columns = np.flatnonzero(tested.undecided)
    for j, middle in zip(columns.tolist(), number.integers(columns), strict=True):
        values[j], is_decided = _round_interval(
            middle, error, BITS * number.first, divide_by, target
        )
        if not is_decided:
            undecided.append(j)
    return values, np.array(undecided, np.intp)


def _round_as_float64(
    number: FixedPoint, error: int, divide_by: int, target: FloatFormat
) -> Tested:
    """Round the columns that float64 arithmetic decides."""
    z = np.zeros(number.limbs.shape[1])
    for limbs in number.limbs[::-1]:
        # No cancellation: the limbs below a nonzero limb add up to less than its unit.
        z *= 2.0**BITS
        z += limbs
    unit = math.ldexp(1.0, BITS * number.first)
    z *= unit / divide_by
    bound = np.abs(z)
    bound *= CONVERSION_ERROR
    bound += SLACK * float(error) * unit / divide_by
    lower = round_to(z - bound, target)
    z += bound
    return same_roundings(lower, round_to(z, target))


def _round_interval(
    middle: int, error: int, exponent: int, divide_by: int, target: FloatFormat
) -> tuple[float, bool]:
    """Round the interval of middle +- error in integers (L6); return True if that is decided.

    If undecided, return the rounding of the zero or the tie in the interval.
    """
    low, high = (
        _round_scaled(middle + change, exponent, divide_by, target) for change in (-error, error)
    )
    if low.hex() == high.hex():  # with the sign: -0 is not +0
        return low, True
    if abs(middle) <= error:
        return 0.0, False
    for end in (low, high):
        if math.isinf(end):  # next to the largest number, ties round to infinity
            return end, False
    tie = (Fraction(low) + Fraction(high)) / 2
    return round_ratio(tie.numerator, tie.denominator, target), False


NO_TERMS = np.iinfo(np.int64).min
"""Unit of a row whose terms are all zero."""

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
    xhat_exponent = np.minimum(
        np.frexp(reach)[1].astype(np.int64) + half_exponent_of_eps(eps),
        half_exponent_of_size(x.shape[1]),
    )
    exponents = np.maximum(np.frexp(largest)[1] + xhat_exponent - TERM_BITS, LOWEST_UNIT)
    return np.where((largest == 0) | (reach == 0), NO_TERMS, exponents)


class DgammaSum(FixedPointSum):
    """Accumulator of the terms of dgamma. One more column has the sum of their units."""

    def __init__(self, size: int) -> None:
        super().__init__(size + 1)

    def add_rows(self, high: Float64, low: Float64, units: Integers) -> None:
        """Add the terms high*2**LOW_BITS + low of at most MAX_ROWS rows, in units of each row."""
        for unit in np.unique(units[units != NO_TERMS]).tolist():
            rows = units == unit
            for part, exponent, counted in ((high, unit + LOW_BITS, 0), (low, unit, rows.sum())):
                total = part[rows].sum(axis=0).astype(np.int64)
                self.add_integers(np.append(total, counted), exponent)


def exact_terms(
    dy: Float64, x: Float64, columns: NDArray[np.intp], unit: int, call: Call
) -> tuple[list[float], list[float]]:
    """Round some terms of a row in integers, ties to even; return high and low parts."""
    row = ExactRow(x.tolist(), call.eps, is_centred=call.norm.centred)
    terms = []
    for j in columns.tolist():
        over, under = float(dy[j]).as_integer_ratio()
        up, down = max(0, -unit), max(0, unit)
        terms.append(row.root.nearest(over * row.centred[j] << up, under * row.scale << down))
    low = [float(term & (2**LOW_BITS - 1)) for term in terms]
    return [float(term >> LOW_BITS) for term in terms], low
