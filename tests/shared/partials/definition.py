"""The bytes of a partial from their definition, in fractions, without code of the package.

A term is the integer nearest to dy*c*r/2**unit, ties to even, and the unit comes from powers of
two above |dy|, above the spread of x, above 1/sqrt(eps) and above sqrt(D).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isfinite, isinf, isnan, isqrt
from zlib import crc32

import numpy as np

from shared.promise.families import Array, Case

TYPES = {"float16": 0, "bfloat16": 1, "float32": 2}
LEAST = -320
"""The least exponent of a unit."""
Row = list[float]


def power_above(value: Fraction) -> int:
    """Return the smallest b with value < 2**b, of a positive value."""
    b = value.numerator.bit_length() - value.denominator.bit_length()
    while value >= Fraction(2) ** b:
        b += 1
    return b


def half_power(value: Fraction) -> int:
    """Return the smallest h with value <= 4**h, of a positive value."""
    h = power_above(value) // 2 - 1
    while value > Fraction(4) ** h:
        h += 1
    return h


def nearest(numerator: int, denominator: int, square: Fraction) -> int:
    """Return the integer nearest to numerator/denominator/sqrt(square), ties to even.

    In integers: fractions would be reduced after each step.
    """
    over = 4 * numerator * numerator * square.denominator
    under = denominator * denominator * square.numerator
    twice = isqrt(over // under)
    integer = (twice + 1) // 2
    if twice * twice * under == over and twice % 4 == 1:
        integer -= 1
    return integer if numerator > 0 else -integer


@dataclass(frozen=True)
class Terms:
    """The terms of dgamma of a row of finite numbers: integers times 2**unit."""

    x: Row
    dy: Row
    eps: float
    centred: bool

    @cached_property
    def unit(self) -> int | None:
        """The exponent of the unit; None if every term is zero."""
        largest = max(abs(Fraction(value)) for value in self.dy)
        low, high = (Fraction(end(self.x)) for end in (min, max))
        spread = high - low if self.centred else max(abs(low), abs(high))
        if not largest or not spread:
            return None
        size = half_power(Fraction(len(self.x)))
        if self.eps:
            # The spread is taken as a float64: Python rounds a fraction correctly.
            reach = power_above(Fraction(float(spread))) + half_power(1 / Fraction(self.eps))
            size = min(size, reach)
        return max(power_above(largest) + size - 64, LEAST)

    @cached_property
    def mean_and_w(self) -> tuple[Fraction, Fraction]:
        """The mean, or 0 for RMSNorm, and the mean square of the deviations plus eps."""
        # With one common denominator: sums of fractions would search for it repeatedly.
        under = max(value.as_integer_ratio()[1] for value in self.x)
        x = [int(value * Fraction(under)) for value in map(Fraction, self.x)]
        size, total = len(x), sum(x) if self.centred else 0
        squares = size * sum(value * value for value in x) - total * total
        w = Fraction(squares, (size * under) ** 2) + Fraction(self.eps)
        return Fraction(total, size * under), w

    def integers(self) -> list[int]:
        """Return the terms in units."""
        assert self.unit is not None
        mean, w = self.mean_and_w
        up, down = 2 ** max(0, -self.unit), 2 ** max(0, self.unit)
        terms = []
        for dy, x in zip(self.dy, self.x, strict=True):
            (a, under_a), (b, under_b) = dy.as_integer_ratio(), x.as_integer_ratio()
            c = b * mean.denominator - mean.numerator * under_b
            under = under_a * under_b * mean.denominator * down
            terms.append(nearest(a * c * up, under, w) if a * c else 0)
        return terms


@dataclass(frozen=True)
class Expected:
    """The sums over the rows of a case, and its bytes."""

    case: Case

    @cached_property
    def rows(self) -> list[tuple[Row, Row]]:
        with np.errstate(all="ignore"):  # of signalling NaN
            x, dy = (array.astype(np.float64).tolist() for array in (self.case.x, self.case.dy))
        return list(zip(x, dy, strict=True))

    def _is_infinite(self, x: Row) -> bool:
        return not self.case.centred and any(map(isinf, x)) and not any(map(isnan, x))

    def _is_undefined(self, x: Row) -> bool:
        constant = min(x) == max(x) if self.case.centred else not any(x)
        return not all(map(isfinite, x)) or (self.case.eps == 0 and constant)

    def terms(self) -> Iterator[Terms]:
        """Yield the rows that have a result, with zeros in place of non-finite dy."""
        for x, dy in self.rows:
            if not self._is_undefined(x):
                finite = [value if isfinite(value) else 0.0 for value in dy]
                yield Terms(x, finite, self.case.eps, self.case.centred)

    @cached_property
    def special(self) -> Array:
        """Bits of +infinity, -infinity and NaN among the terms of dgamma and of dbeta."""
        flags = np.zeros((2, self.case.x.shape[1]), np.uint8)
        for x, dy in self.rows:
            infinite, undefined = self._is_infinite(x), self._is_undefined(x)
            if undefined and not infinite:
                flags[0] |= 4
            for j, value in enumerate(dy):
                if not infinite:
                    flags[1, j] |= _bit(value)
                if not undefined and not isfinite(value):
                    flags[0, j] |= _bit(value * _sign(x, j, centred=self.case.centred))
                elif infinite:
                    flags[0, j] |= 4 if isinf(x[j]) else _bit(value * 0.0)
        return np.where(flags & 4, 4, flags).astype(np.uint8)  # NaN prevails

    @cached_property
    def dgamma(self) -> list[Fraction]:
        """The sums of the terms, then the sum of the units."""
        total = [0] * (self.case.x.shape[1] + 1)  # in units of 2**LEAST
        for row in self.terms():
            if row.unit is not None:
                for j, term in enumerate([*row.integers(), 1]):
                    total[j] += term << (row.unit - LEAST)
        flags = [*self.special[0].tolist(), 0]
        return [
            Fraction(0 if flag else each, 2**-LEAST)
            for each, flag in zip(total, flags, strict=True)
        ]

    @cached_property
    def dbeta(self) -> list[Fraction]:
        columns = zip(*(dy for _, dy in self.rows), strict=True)
        if self.case.beta is None:
            return [Fraction(0)] * self.case.x.shape[1]
        return [
            Fraction(0) if flag else sum(map(Fraction, column), Fraction(0))
            for column, flag in zip(columns, self.special[1].tolist(), strict=True)
        ]

    def to_bytes(self) -> bytes:
        """Return the header, limbs, flags and checksum."""
        case = self.case
        numbers = [_limbs(self.dgamma), _limbs(self.dbeta)]
        ranges = [part for first, limbs in numbers for part in (first, len(limbs))]
        types = [_type(array) for array in (case.x, case.gamma, case.beta)]
        header = struct.pack(
            "<16sH4BdQiIiIB", b"truenorm partial", 2, 0 if case.centred else 1, *types,
            case.eps, len(case.x), *ranges, 1,
        )  # fmt: skip
        flat = [value for _, limbs in numbers for limb in limbs for value in limb]
        size = struct.pack("<Q", case.x.shape[1])
        body = header + size + struct.pack(f"<{len(flat)}i", *flat) + self.special.tobytes()
        return body + struct.pack("<I", crc32(body))


def _type(array: Array | None) -> int:
    return 255 if array is None else TYPES[array.dtype.name]


def _bit(value: float) -> int:
    if isfinite(value):
        return 0
    return 4 if isnan(value) else 1 if value > 0 else 2


def _sign(x: Row, j: int, *, centred: bool) -> float:
    total = sum(map(Fraction, x), Fraction(0)) if centred else Fraction(0)
    c = Fraction(x[j]) * len(x) - total
    return float((c > 0) - (c < 0))


def _limbs(columns: list[Fraction]) -> tuple[int, list[list[int]]]:
    """Return the first position, and for each position the limbs in base 2**32, from -2**31 on."""
    if not any(columns):
        return 0, []
    first = -40
    values = [int(value * 2 ** (-32 * first)) for value in columns]
    assert [Fraction(value, 2 ** (-32 * first)) for value in values] == columns
    limbs = []
    while any(values):
        limb = [(value + 2**31) % 2**32 - 2**31 for value in values]
        values = [(value - part) >> 32 for value, part in zip(values, limb, strict=True)]
        limbs.append(limb)
    while not any(limbs[0]):
        limbs.pop(0)
        first += 1
    return first, limbs
