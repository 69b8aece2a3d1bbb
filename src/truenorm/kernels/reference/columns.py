"""Sums over rows: dbeta exactly, dgamma with a bound."""

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat, round_ratio
from truenorm.kernels.double_double import two_sum
from truenorm.kernels.reference.bounds import SLACK, U
from truenorm.kernels.reference.working_precision import ColumnTerms, rounding_test
from truenorm.kernels.rounding import Tested

__all__ = ["BoundedSum", "CompensatedSum", "ExactSum"]

Float64 = NDArray[np.float64]


class ExactSum:
    """The sum of finite float64 numbers in each column, without any error.

    Every number is cut into digits of BIN bits at fixed places, and each place is summed in
    integers. Integer addition is associative: the order of the rows cannot matter.
    """

    BIN = 32
    """Bits of a digit. A float64 adds up 2**20 of them exactly, an int64 2**31."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._places: dict[int, NDArray[np.int64]] = {}

    def add(self, terms: Float64) -> None:
        """Add at most 2**20 rows; `terms` is used up."""
        largest = float(np.abs(terms).max(initial=0.0))
        # Places lie at BIN*k - BIN/2, so that numbers around 1 begin in the middle of a digit.
        place = (int(np.frexp(largest)[1]) + self.BIN // 2) // self.BIN
        while largest > 0:
            exponent = self.BIN * place - self.BIN // 2
            digits = np.trunc(_times_power(terms, -exponent))
            total = self._places.setdefault(place, np.zeros(self._columns, np.int64))
            total += digits.sum(axis=0).astype(np.int64)
            terms -= _times_power(digits, exponent)
            largest = float(np.abs(terms).max())
            place -= 1

    def rounded(self, target: FloatFormat) -> Float64:
        """Return the sums, rounded to the target type."""
        if not self._places:
            return np.zeros(self._columns)
        lowest = min(self._places)
        exponent = self.BIN * lowest - self.BIN // 2
        sums = [0] * self._columns
        for place, digits in self._places.items():
            shift = self.BIN * (place - lowest)
            sums = [
                total + (digit << shift)
                for total, digit in zip(sums, digits.tolist(), strict=True)
            ]
        up, under = max(0, exponent), 1 << max(0, -exponent)
        return np.array([round_ratio(total << up, under, target) for total in sums])


def _times_power(values: Float64, exponent: int) -> Float64:
    """Multiply by 2**exponent, in two steps where one factor would leave the range."""
    if abs(exponent) < 1000:
        return values * 2.0**exponent
    half = exponent // 2
    return values * 2.0**half * 2.0 ** (exponent - half)


class CompensatedSum:
    """The sums of columns over blocks, one after the other, as a pair (high, low)."""

    def __init__(self, columns: int) -> None:
        self._high, self.low = np.zeros((2, columns))

    def add(self, block: Float64) -> None:
        """Add the sums of a block."""
        self._high, error = two_sum(self._high, block)
        self.low += error

    @property
    def total(self) -> Float64:
        """The sums, as new float64."""
        return self._high + self.low


class BoundedSum:
    """The sum of blocks of dgamma's terms, with a bound on its error."""

    def __init__(self, columns: int) -> None:
        self._sum = CompensatedSum(columns)
        self._bound = np.zeros(columns)

    def add(self, block: ColumnTerms) -> None:
        """Add a block's share; the low part loses at most u times itself, (E13)."""
        self._sum.add(block.total)
        self._bound += block.bound + U * np.abs(self._sum.low)

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums that are known well enough."""
        z = self._sum.total
        return rounding_test(z, SLACK * (self._bound + 2 * U * np.abs(z)), target)
