"""Sums over rows: pairs with a bound while backward sweeps, and better ones where those fail."""

from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.call import Call
from truenorm.kernels.fused.blocks import coded
from truenorm.kernels.fused.compiled.columns.column_sums import (
    is_exact_sum,
    merge_dbeta,
    merge_dgamma,
)
from truenorm.kernels.fused.compiled.columns.exact_columns import (
    BITS,
    LOWEST,
    add_digits,
    as_pairs,
)
from truenorm.kernels.fused.compiled.pairs.columns import round_columns, sum_columns
from truenorm.kernels.fused.first_call.loading import needs_compiling
from truenorm.kernels.fused.scratch import aligned, scratch_of_pairs
from truenorm.kernels.fused.sweep import Sweep
from truenorm.kernels.ground import SUMS
from truenorm.kernels.lattice.digits import Digits
from truenorm.kernels.rounding import Tested, canonical_nan, round_to
from truenorm.kernels.storage import Stored

__all__ = ["DigitColumns", "PairColumns", "Sums", "places_of"]

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]

DIGITS = 2**17
"""Digits that a thread holds: 1 MB."""


class BoundedSum:
    """dgamma: pairs (high, low) times a power of two, with a bound on their error."""

    def __init__(self, array: Float64, exponent: int) -> None:
        self.array = array
        self._exponent = exponent

    def merge(self, other: "BoundedSum") -> None:
        """Add the sums over other rows."""
        merge_dgamma(self.array, other.array)

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums that are known well enough."""
        high, low, bound = self.array[:3]
        exponents = _zeros(len(high), "int64")
        if self._exponent != 0:
            exponents = np.full(len(high), self._exponent)
        return _rounded(high, low, bound, exponents, target)


class CountedSum:
    """dbeta: pairs (high, low) that are exact as long as the numbers are not too far apart.

    The source is the type of those; None if they are left to integers, as in double-double.
    """

    def __init__(self, array: Float64, source: FloatFormat | None) -> None:
        self._array = array
        self._source = source
        self._rows, self._smallest, self._largest = 0, 0xFFFFFFFF, 0

    def note(self, rows: int, smallest: int, largest: int) -> None:
        """Note how many rows were added, and the magnitudes among them."""
        self._rows += rows
        self._smallest = min(self._smallest, smallest)
        self._largest = max(self._largest, largest)

    def merge(self, other: "CountedSum") -> None:
        """Add the sums over other rows."""
        merge_dbeta(self._array, other._array)
        self.note(other._rows, other._smallest, other._largest)

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums if they are exact, and else refuse them all."""
        high, low = self._array[3:]
        size = len(high)
        if self._source is not None and self._is_exact(self._source):
            return _rounded(high, low, _zeros(size, "float64"), _zeros(size, "int64"), target)
        return Tested(round_to(np.zeros(size), target), np.ones(size, bool))

    def as_digits(self) -> Digits | None:
        """Return the sums if they are exact."""
        if self._source is None or not self._is_exact(self._source):
            return None
        found = Digits(self._array.shape[1])
        found.add(self._array[3:].copy())
        return found

    def _is_exact(self, source: FloatFormat) -> bool:
        mantissa = source.precision - 1
        bias = 1 - source.quantum - mantissa
        return bool(is_exact_sum(self._smallest, self._largest, mantissa, bias, self._rows))


class Sums:
    """Both sums, side by side in one array: see `kernels.ground`."""

    def __init__(self, size: int, source: FloatFormat | None, exponent: int) -> None:
        self.array = aligned(SUMS * size).reshape(SUMS, size)
        self.array[...] = 0
        self.dgamma = BoundedSum(self.array, exponent)
        self.dbeta = CountedSum(self.array, source)

    def note(self, rows: int, found: tuple[int, int, int]) -> int:
        """Note what a kernel returned of so many rows; return how many are not done."""
        left, smallest, largest = found
        self.dbeta.note(rows, smallest, largest)
        return left

    def merge(self, other: "Sums") -> None:
        """Add the sums over other rows."""
        self.dgamma.merge(other.dgamma)
        self.dbeta.merge(other.dbeta)


@lru_cache(maxsize=4)
def _zeros(size: int, dtype: str) -> NDArray[Any]:
    """Return exponents or bounds where there are none; nobody writes to them."""
    return np.zeros(size, dtype)


def _rounded(
    high: Float64, low: Float64, bound: Float64, exponents: Integers, target: FloatFormat
) -> Tested:
    stored = np.empty(len(high), canonical_nan(target).dtype)
    refused = np.empty(len(high), np.bool_)
    round_columns(high, low, bound, exponents, coded(stored, target), refused)
    return Tested(stored, refused)


class PairColumns(Sweep):
    """Some columns of dgamma in double-double."""

    def __init__(self, call: Call, columns: NDArray[np.intp], exponent: int) -> None:
        super().__init__(call)
        self.columns = columns
        self._exponent = exponent

    @cached_property
    def would_compile(self) -> bool:
        """Whether it means compiling."""
        none = self.no_rows()
        return needs_compiling(lambda: self.add(none, none, self.sums()))

    def sums(self) -> BoundedSum:
        """Return sums over no rows."""
        return BoundedSum(np.zeros((SUMS, len(self.columns))), self._exponent)

    def add(self, dy: Stored, x: Stored, sums: BoundedSum) -> None:
        """Add a block of rows."""
        sum_columns(
            self.coded(dy),
            self.coded(x),
            self.columns,
            self._exponent,
            self.call.eps,
            self.centred,
            sums.array,
            np.empty((2, len(self.columns))),
            aligned(scratch_of_pairs(self.call.size)),
        )


class DigitSum:
    """Exact sums as digits at fixed places: integer addition is associative."""

    def __init__(self, first: int, places: int, columns: int) -> None:
        self.first = first
        self.digits = np.zeros((places, columns), np.int64)

    def merge(self, other: "DigitSum") -> None:
        """Add the sums over other rows."""
        self.digits += other.digits

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums; none is refused."""
        columns = self.digits.shape[1]
        high, low = np.empty((2, columns))
        exponents = np.empty(columns, np.int64)
        as_pairs(self.first, self.digits, high, low, exponents)
        return _rounded(high, low, np.zeros(columns), exponents, target)

    def as_digits(self) -> Digits:
        """Return the sums."""
        found = Digits(self.digits.shape[1])
        for k, place in enumerate(self.digits):
            found.deposit(place, (self.first + k) * BITS + LOWEST)
        return found


class DigitColumns(Sweep):
    """Some columns of dbeta without any error."""

    def __init__(self, call: Call, columns: NDArray[np.intp]) -> None:
        super().__init__(call)
        first, end = places_of(narrow=call.target is not FLOAT64)
        self._first, self._places = first, end - first
        self.columns = columns[: max(1, DIGITS // self._places)]

    def sums(self) -> DigitSum:
        """Return sums over no rows."""
        return DigitSum(self._first, self._places, len(self.columns))

    def add(self, dy: Stored, _x: Stored, sums: DigitSum) -> None:
        """Add a block of rows."""
        add_digits(self.coded(dy), self.columns, self._first, sums.digits)


def places_of(*, narrow: bool) -> tuple[int, int]:
    """Return the first place that numbers of a type can have, and the one after the last.

    As float64 numbers, those of float32 and below have their last bit at 2**-201 or above.
    """
    lowest, highest = (-201, 128) if narrow else (LOWEST, 1024)
    return (lowest - LOWEST) // BITS, (highest - LOWEST) // BITS + 2
