"""Sums over rows: dbeta where it is exact, dgamma with a bound, and both in fast mode."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels import double_double as dd
from truenorm.kernels.call import Call
from truenorm.kernels.double_double import Pair, two_sum
from truenorm.kernels.fixed_point import NO_TERMS, DgammaSum, FixedPointSum, exact_terms, units
from truenorm.kernels.protocol import RowStatus
from truenorm.kernels.reference import tier2
from truenorm.kernels.reference.tier1 import PAIR_BLOCK, ColumnTerms, rounding_test
from truenorm.kernels.rounding import Tested, round_to
from truenorm.kernels.rows import Stored, blocks_of, widen
from truenorm.kernels.tuning import LOW_BITS, MAX_ROWS, OK, SLACK, TINY, UNDECIDED, U, W

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass
class Sums:
    """The accumulators of a backward pass."""

    dgamma_sum: Any
    dbeta_sum: Any

    def merge(self, other: "Sums") -> None:
        """Add the sums over other rows."""
        self.dgamma_sum.merge(other.dgamma_sum)
        self.dbeta_sum.merge(other.dbeta_sum)

    def dgamma(self, target: FloatFormat) -> Tested:
        """Round the sum of dy*xhat."""
        tested: Tested = self.dgamma_sum.rounded(target)
        return tested

    def dbeta(self, target: FloatFormat) -> Tested:
        """Round the sum of dy."""
        tested: Tested = self.dbeta_sum.rounded(target)
        return tested

    def fixed_point_dbeta(self) -> FixedPointSum | None:
        """Return the sum of dy, or None if it is not exact."""
        total: FixedPointSum | None = self.dbeta_sum.fixed_point()
        return total


class CertifiedSum:
    """Sums of numbers of one format in float64, with a test of their exactness.

    All terms of a column are multiples of the last place of the smallest. If their magnitudes add
    up to less than 2**53 such places, every partial sum is a float64, in any order, and nothing
    is rounded (docs/inside/error-analysis.md, dgamma and dbeta).
    """

    def __init__(self, columns: int, source: FloatFormat) -> None:
        self._reach = 2.0 ** (FLOAT64.precision - source.precision)
        self._total, self._size = np.zeros((2, columns))
        self._least = np.full(columns, np.inf)

    def add(self, terms: Float64) -> None:
        """Add a block of finite rows. Overwrites `terms`."""
        self._total += terms.sum(axis=0)
        sizes = np.abs(terms, out=terms)
        self._size += sizes.sum(axis=0)
        least = sizes.min(axis=0)
        if not least.all():  # zeros are multiples of everything
            sizes[sizes == 0] = np.inf
            least = sizes.min(axis=0)
        np.minimum(self._least, least, out=self._least)

    def merge(self, other: "CertifiedSum") -> None:
        """Add the sums over other rows."""
        self._total += other._total
        self._size += other._size
        np.minimum(self._least, other._least, out=self._least)

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums that are exact."""
        return Tested(round_to(self._total, target), self._inexact)

    def fixed_point(self) -> FixedPointSum | None:
        """Return the sums, or None if one is not exact."""
        if self._inexact.any():
            return None
        total = FixedPointSum(len(self._total))
        total.add(self._total[np.newaxis].copy())
        return total

    @property
    def _inexact(self) -> NDArray[np.bool_]:
        # The right side is below 2**53 places; a size that was rounded is not.
        inexact: NDArray[np.bool_] = self._size > self._reach * self._least
        return inexact


class CompensatedSum:
    """Sums of columns over blocks, in order, as a pair (high, low)."""

    def __init__(self, columns: int) -> None:
        self.high, self.low = np.zeros((2, columns))

    def add(self, block: Float64) -> None:
        """Add the sums of a block."""
        self.high, error = two_sum(self.high, block)
        self.low += error

    def merge(self, other: "CompensatedSum") -> None:
        """Add the sums over other rows."""
        self.add(other.high)
        self.low += other.low

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums without a test: this is fast mode."""
        total = self.high + self.low
        total[np.isnan(total)] = np.nan  # the canonical one
        return Tested(round_to(total, target), np.zeros(len(total), bool))


class BoundedSum:
    """Sums of dgamma's terms over blocks, with a bound on their error."""

    def __init__(self, columns: int) -> None:
        self._sum = CompensatedSum(columns)
        self._bound = np.zeros(columns)

    def add(self, block: ColumnTerms) -> None:
        """Add the sums of a block; the low part loses at most u times itself, (E13)."""
        self._sum.add(block.total)
        self._bound += block.bound + U * np.abs(self._sum.low)

    def merge(self, other: "BoundedSum") -> None:
        """Add the sums over other rows; three low parts are added, each sum losing u of itself."""
        before = np.abs(self._sum.low) + np.abs(other._sum.low)
        self._sum.merge(other._sum)
        lost = before + U * np.abs(self._sum.high) + np.abs(self._sum.low)
        self._bound += other._bound + 2 * U * lost

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums whose bound allows it."""
        z = self._sum.high + self._sum.low
        return rounding_test(z, SLACK * (self._bound + 2 * U * np.abs(z)), target)


class ColumnPairs(NamedTuple):
    """(high + low)*2**exponent for each column, with a bound in the same units."""

    total: Pair
    exponent: Integers
    bound: Float64

    def plus(self, other: "ColumnPairs") -> "ColumnPairs":
        """Return the sums over both blocks of rows."""
        exponent = np.maximum(self.exponent, other.exponent)
        left, right = (
            tier2.scaled(part.total, part.exponent - exponent) for part in (self, other)
        )
        bounds = [
            np.ldexp(part.bound, tier2.clipped(part.exponent - exponent)) for part in (self, other)
        ]
        size = np.abs(left[0]) + np.abs(right[0])
        rounding = 4 * W * size + TINY * (size + sum(bounds) > 0)  # zeros add up to zero
        return ColumnPairs(dd.add(left, right), exponent, bounds[0] + bounds[1] + rounding)


class PairSum:
    """Sums of dgamma's terms over blocks in double-double, with a bound on their error."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._total: ColumnPairs | None = None

    def add(self, block: ColumnPairs) -> None:
        """Add the sums of a block."""
        self._total = block if self._total is None else self._total.plus(block)

    def merge(self, other: "PairSum") -> None:
        """Add the sums over other rows."""
        if other._total is not None:
            self.add(other._total)

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums whose bound allows it."""
        if self._total is None:
            return Tested(round_to(np.zeros(self._columns), target), np.zeros(self._columns, bool))
        total, exponent, bound = self._total
        return tier2.rounding_test(total, SLACK * bound, exponent, target)


def column_terms(rows: tier2.PairRows, dy: Float64, columns: NDArray[np.intp]) -> ColumnPairs:
    """Return the sums of a block in some columns."""
    c = rows.c[0][:, columns], rows.c[1][:, columns]
    t, exponents, dy_part = _terms(rows, c, dy[:, columns])
    common = (exponents + dd.exponent_of(t[0])).max(axis=0)
    shift = exponents - common
    t = tier2.scaled(t, shift)
    depth = 3 * (len(dy) - 1).bit_length()
    bound = _terms_bound(rows, t, dy_part, shift, 16 + depth)
    high, low = dd.tree_sum(t, 0)
    # A column of exact zeros has no error: c = 0 in constant rows, or dy = 0.
    zero = ((dy_part == 0) | rows.constant).all(axis=0)
    total_bound = np.where(zero, 0.0, SLACK * bound.sum(axis=0) + len(dy) * TINY)
    return ColumnPairs((high[0], low[0]), common, total_bound)


def _terms(rows: tier2.PairRows, c: Pair, dy: Float64) -> tuple[Pair, Integers, Float64]:
    """Return dy*xhat as scaled pairs, their exponents, and the significands of dy."""
    dy_part, dy_exponent = np.frexp(dy)
    t = dd.multiply_float(dd.multiply(c, rows.r), dy_part)
    return t, rows.exponent - rows.w_exponent + dy_exponent, dy_part


def _terms_bound(
    rows: tier2.PairRows, t: Pair, dy_part: Float64, shift: Integers, roundings: int
) -> Float64:
    """Return the bound (P10) on the error of terms scaled by `shift`."""
    bound: Float64 = np.abs(t[0]) * (rows.r_bound + roundings * W) + np.ldexp(
        np.abs(dy_part) * (rows.r[0] * rows.centring), tier2.clipped(shift)
    )
    return bound


class FixedPointDgamma:
    """The fixed-point sum of dgamma of a call."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._rows = min(max(1, PAIR_BLOCK // call.size), MAX_ROWS)

    def sums(self) -> DgammaSum:
        """Return zeroed accumulators."""
        return DgammaSum(self._call.size)

    def add(self, dy: Stored, x: Stored, status: RowStatus | None, sums: DgammaSum) -> None:
        """Add the rows of a block that are OK or UNDECIDED; None means all of them."""
        call = self._call
        if status is not None:
            some = (status == OK) | (status == UNDECIDED)
            dy, x = dy[some], x[some]
        for start, stop in blocks_of((0, len(x)), self._rows):
            dy_block, x_block = (widen(part[start:stop], call.x_format) for part in (dy, x))
            unit = units(dy_block, x_block, call.eps, call.norm)
            rows = unit != NO_TERMS
            if rows.any():
                high, low = _rounded_terms(dy_block[rows], x_block[rows], unit[rows], call)
                sums.add_rows(high, low, unit[rows])


def _rounded_terms(dy: Float64, x: Float64, unit: Integers, call: Call) -> tuple[Float64, Float64]:
    """Return the terms in units: high*2**LOW_BITS + low."""
    rows = tier2.describe(x, call)
    t, exponents, dy_part = _terms(rows, rows.c, dy)
    shift = exponents - unit[:, np.newaxis]
    t = tier2.scaled(t, shift)
    bound = SLACK * _terms_bound(rows, t, dy_part, shift, 16)
    high = np.rint(t[0] * 2.0**-LOW_BITS)
    rest, error = dd.two_sum(t[0] - high * 2.0**LOW_BITS, t[1])
    low = np.rint(rest)
    distance = np.abs((rest - low) + error)
    undecided = ~(distance <= 0.5 - (bound + TINY + 2.0**-50))  # (L3)
    for i in np.flatnonzero(undecided.any(axis=1)).tolist():
        columns = np.flatnonzero(undecided[i])
        high[i, columns], low[i, columns] = exact_terms(dy[i], x[i], columns, int(unit[i]), call)
    return high, low
