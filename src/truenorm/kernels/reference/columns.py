"""Sums over rows: dbeta where it is exact, dgamma with a bound, and both in fast mode."""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels import double_double as dd
from truenorm.kernels.call import Call
from truenorm.kernels.double_double import Pair, two_sum
from truenorm.kernels.fixed_point import (
    NO_TERMS,
    AfterLevel,
    DgammaSum,
    FixedPointSum,
    exact_terms,
    units,
)
from truenorm.kernels.protocol import ColumnSums
from truenorm.kernels.reference import tier2
from truenorm.kernels.reference.tier1 import PAIR_BLOCK, ColumnTerms, rounding_test
from truenorm.kernels.rounding import Tested, round_to
from truenorm.kernels.rows import Stored, blocks_of, widen
from truenorm.kernels.tuning import HIGH, MOST_ROWS, OK, SLACK, TINY, UNDECIDED, U, W

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]
Dgamma = TypeVar("Dgamma", bound=ColumnSums)
Dbeta = TypeVar("Dbeta", bound=ColumnSums)


@dataclass
class Sums(Generic[Dgamma, Dbeta]):
    """The sums over rows that grow while backward sweeps."""

    dgamma: Dgamma
    dbeta: Dbeta

    def merge(self, other: "Sums[Dgamma, Dbeta]") -> None:
        """Add the sums over other rows."""
        self.dgamma.merge(other.dgamma)
        self.dbeta.merge(other.dbeta)


class CertifiedSum:
    """The sums of numbers of one type in float64, where that is exact.

    All terms of a column are multiples of the last place of the smallest. If their magnitudes add
    up to less than 2**53 such places, every partial sum is a float64, whatever the order, and
    nothing is rounded (docs/error-analysis.md, dgamma and dbeta).
    """

    def __init__(self, columns: int, source: FloatFormat) -> None:
        self._reach = 2.0 ** (FLOAT64.precision - source.precision)
        self._total, self._size = np.zeros((2, columns))
        self._least = np.full(columns, np.inf)

    def add(self, terms: Float64) -> None:
        """Add a block of finite rows; `terms` is used up."""
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

    def as_fixed_point(self) -> FixedPointSum | None:
        """Return the sums if all are exact."""
        if self._inexact.any():
            return None
        found = FixedPointSum(len(self._total))
        found.add(self._total[np.newaxis].copy())
        return found

    @property
    def _inexact(self) -> NDArray[np.bool_]:
        # The right side is below 2**53 places, and a size that was rounded is not.
        found: NDArray[np.bool_] = self._size > self._reach * self._least
        return found


class CompensatedSum:
    """The sums of columns over blocks, one after the other, as a pair (high, low)."""

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

    @property
    def total(self) -> Float64:
        """The sums, as new float64."""
        return self.high + self.low

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums as they are: this is fast mode."""
        total = self.total
        total[np.isnan(total)] = np.nan  # in its one form
        return Tested(round_to(total, target), np.zeros(len(total), bool))


class BoundedSum:
    """The sum of blocks of dgamma's terms, with a bound on its error."""

    def __init__(self, columns: int) -> None:
        self._sum = CompensatedSum(columns)
        self._bound = np.zeros(columns)

    def add(self, block: ColumnTerms) -> None:
        """Add a block's share; the low part loses at most u times itself, (E13)."""
        self._sum.add(block.total)
        self._bound += block.bound + U * np.abs(self._sum.low)

    def merge(self, other: "BoundedSum") -> None:
        """Add the sums over other rows; three low parts are added, each sum losing u of itself."""
        before = np.abs(self._sum.low) + np.abs(other._sum.low)
        self._sum.merge(other._sum)
        lost = before + U * np.abs(self._sum.high) + np.abs(self._sum.low)
        self._bound += other._bound + 2 * U * lost

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums that are known well enough."""
        z = self._sum.total
        return rounding_test(z, SLACK * (self._bound + 2 * U * np.abs(z)), target)


class ColumnPairs(NamedTuple):
    """(high + low)*2**exponent for each column, with a bound in the same units."""

    total: Pair
    exponent: Integers
    bound: Float64

    def __add__(self, other: "ColumnPairs") -> "ColumnPairs":  # type: ignore[override]
        """Add the sums of another block of rows."""
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

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums that are known well enough."""
        return tier2.rounding_test(self.total, SLACK * self.bound, self.exponent, target)


def column_terms(rows: tier2.PairRows, dy: Float64, columns: NDArray[np.intp]) -> ColumnPairs:
    """Return the block's share of dgamma in some columns."""
    dy_part, dy_exponent = np.frexp(dy[:, columns])
    c = rows.c[0][:, columns], rows.c[1][:, columns]
    t = dd.multiply_float(dd.multiply(c, rows.r), dy_part)
    exponents = rows.exponent - rows.w_exponent + dy_exponent
    common = (exponents + dd.exponent_of(t[0])).max(axis=0)
    shift = exponents - common
    t = tier2.scaled(t, shift)
    depth = 3 * (len(dy) - 1).bit_length()
    bound = np.abs(t[0]) * (rows.r_bound + (16 + depth) * W) + np.ldexp(
        np.abs(dy_part) * (rows.r[0] * rows.centring), tier2.clipped(shift)
    )  # (P10)
    high, low = dd.tree_sum(t, 0)
    # A column of exact zeros has a sum without error: c = 0 in constant rows, or dy = 0.
    zero = ((dy_part == 0) | rows.constant).all(axis=0)
    total_bound = np.where(zero, 0.0, SLACK * bound.sum(axis=0) + len(dy) * TINY)
    return ColumnPairs((high[0], low[0]), common, total_bound)


class PairSum:
    """The sum of blocks of dgamma's terms in double-double, with a bound on its error."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._total: ColumnPairs | None = None

    def add(self, block: ColumnPairs) -> None:
        """Add a block's share."""
        self._total = block if self._total is None else self._total + block

    def merge(self, other: "PairSum") -> None:
        """Add the sums over other rows."""
        if other._total is not None:
            self.add(other._total)

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums that are known well enough."""
        if self._total is None:
            return Tested(round_to(np.zeros(self._columns), target), np.zeros(self._columns, bool))
        return self._total.rounded(target)


RowStatus = NDArray[np.uint8]


class FixedPointDgamma(AfterLevel):
    """dgamma of a call on the lattice."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._rows = min(max(1, PAIR_BLOCK // call.size), MOST_ROWS)

    def sums(self) -> DgammaSum:
        """Return sums over no rows."""
        return DgammaSum(self._call.size)

    def add(self, dy: Stored, x: Stored, status: RowStatus | None, sums: DgammaSum) -> None:
        """Add a block of rows with a result and finite dy; or those of it that are such."""
        call = self._call
        if status is not None:
            some = (status == OK) | (status == UNDECIDED)
            dy, x = dy[some], x[some]
        for start, stop in blocks_of((0, len(x)), self._rows):
            slopes, values = (widen(part[start:stop], call.x_format) for part in (dy, x))
            unit = units(slopes, values, call.eps, call.norm)
            there = unit != NO_TERMS
            if there.any():
                high, low = _rounded(slopes[there], values[there], unit[there], call)
                sums.add_rows(high, low, unit[there])


def _rounded(dy: Float64, x: Float64, unit: Integers, call: Call) -> tuple[Float64, Float64]:
    """Return the terms in units: high*2**HIGH + low."""
    rows = tier2.describe(x, call)
    dy_part, dy_exponent = np.frexp(dy)
    t = dd.multiply_float(dd.multiply(rows.c, rows.r), dy_part)
    shift = rows.exponent - rows.w_exponent + dy_exponent - unit[:, np.newaxis]
    t = tier2.scaled(t, shift)
    bound = SLACK * (
        np.abs(t[0]) * (rows.r_bound + 16 * W)
        + np.ldexp(np.abs(dy_part) * (rows.r[0] * rows.centring), tier2.clipped(shift))
    )  # (P10)
    high = np.rint(t[0] * 2.0**-HIGH)
    rest, error = dd.two_sum(t[0] - high * 2.0**HIGH, t[1])
    low = np.rint(rest)
    left = np.abs((rest - low) + error)
    undecided = ~(left <= 0.5 - (bound + TINY + 2.0**-50))  # (L3)
    for i in np.flatnonzero(undecided.any(axis=1)).tolist():
        columns = np.flatnonzero(undecided[i])
        high[i, columns], low[i, columns] = exact_terms(dy[i], x[i], columns, int(unit[i]), call)
    return high, low
