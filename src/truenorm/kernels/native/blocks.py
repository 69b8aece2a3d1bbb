"""The C core as the driver uses it: blocks of rows.

The driver takes care of layouts and special values, and the reference backend of rows and
columns that the core leaves undecided.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.call import TYPE_CODES, Call, Flags
from truenorm.kernels.double_double import two_sum
from truenorm.kernels.fixed_point import FixedPoint, FixedPointSum, canonical
from truenorm.kernels.native import _core
from truenorm.kernels.protocol import Backend, FixedPointTotal, RowStatus
from truenorm.kernels.rounding import Tested, round_pair, round_to, same_roundings
from truenorm.kernels.rows import Range, Stored, blocks_of
from truenorm.kernels.tuning import OK, SLACK, SUMS, U
from truenorm.threads import thread_count

Float64 = NDArray[np.float64]
Columns = NDArray[np.intp]

BLOCK = 2**18
"""Elements of a block of rows, on which one call of the core works."""


def _mode(call: Call) -> int:
    """Return the mode of the core: its flags and the format of the rows."""
    centred = _core.CENTRED if call.norm.centred else 0
    fast = _core.FAST if call.arithmetic in ("fast32", "fast64") else 0
    wide = _core.WIDE if _is_wide(call) else 0
    return centred | fast | wide | TYPE_CODES[call.x_format.name] << _core.ROWS_AT


def _is_wide(call: Call) -> bool:
    """Return True if narrower rows have float64 parameters."""
    return call.arithmetic == "tier2" and call.x_format is not FLOAT64


class _Sweep:
    """A sweep over all rows, in blocks that are shared among threads."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.threads = thread_count(call.threads)
        self.rows_at_once = max(1, BLOCK // call.size)
        self.parts: list[Range] = list(blocks_of((0, call.count), self.rows_at_once)) or [(0, 0)]
        self._mode = _mode(call)


class _Pass(_Sweep):
    """A pass of the C core, and the backend that computes what it leaves undecided."""

    def __init__(self, call: Call, reference: Backend) -> None:
        super().__init__(call)
        self._backend = reference
        # Narrower parameters are exact in float32, or float64 beside float64 ones or rows.
        dtype = np.float64 if call.x_format is FLOAT64 or _is_wide(call) else np.float32
        self._gamma = call.gamma.finite.astype(dtype)
        self._beta = call.beta.finite.astype(dtype)


class NativeForward(_Pass):
    """Forward pass of the C core."""

    @cached_property
    def _reference(self) -> Any:
        # Not before it is needed: the reference logs how long it may take.
        return self._backend.forward(self.call)

    def compute(self, x: Stored, y: Stored, saved: Float64, status: RowStatus) -> bool:
        """Compute y, the saved statistics and the row status; return True if one is not OK."""
        if len(x) == 0:
            return False
        eps = self.call.eps
        not_ok = _core.forward_rows(x, self._gamma, self._beta, y, saved, status, eps, self._mode)
        if not_ok and self.call.x_format is FLOAT64:
            # The core marks statistics that need exponents of their own.
            far = np.flatnonzero(np.isneginf(saved[:, -1]))
            if len(far):
                saved[far] = self._reference.saved_statistics(x[far])
        return not_ok > 0

    def recompute(self, x: Stored, saved: Float64, y: Stored) -> Flags:
        """Recompute undecided rows; return the elements that remain undecided."""
        undecided: Flags = self._reference.recompute(x, saved, y)
        return undecided


class NativeBackward(_Pass):
    """Backward pass of the C core."""

    def __init__(self, call: Call, reference: Backend) -> None:
        super().__init__(call, reference)
        if self._is_fast:
            # Each block of rows has sums of its own, as in `calls.c`.
            self.rows_at_once = rows_of_fast_block(call.count, call.size)
            # The last part is for rows whose dy is not finite.
            blocks = blocks_of((0, call.count), self.rows_at_once)
            self.parts = [*blocks, (call.count, call.count)]

    @property
    def _is_fast(self) -> bool:
        return self.call.arithmetic in ("fast32", "fast64")

    @cached_property
    def _reference(self) -> Any:
        return self._backend.backward(self.call)

    def sums(self) -> "_Sums":
        """Return zeroed accumulators."""
        if self.call.x_format is FLOAT64:
            return Sums64(self.call.size, 2 if self._is_fast else 3)
        return FastSums(self.call.size) if self._is_fast else CorrectSums(self.call.size)

    def recompute_saved(self, x: Stored, saved: Float64) -> bool:
        """Replace the saved statistics; return True if a row mean changed."""
        if self.call.arithmetic == "tier2" and self.call.x_format is FLOAT64:
            return False  # only the mean is compared
        return len(x) > 0 and _core.statistics(x, saved, self._mode) > 0

    def compute(
        self, dy: Stored, x: Stored, saved: Float64, dx: Stored, sums: "_Sums", status: RowStatus
    ) -> bool:
        """Compute dx and the row status, and add to the sums; return True if one is not OK."""
        if len(x) == 0:
            return False
        not_ok, *magnitudes = _core.backward_rows(
            dy, x, self._gamma, saved, dx, sums.array, status, self.call.eps, self._mode
        )
        sums.note_magnitudes(len(x), *magnitudes)
        return not_ok > 0

    def recompute(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Recompute undecided rows; return the elements that remain undecided."""
        undecided: Flags = self._reference.recompute(dy, x, dx)
        return undecided

    def tier2_dgamma(self, columns: Columns) -> Any:
        """Return a tier-2 sum of some columns."""
        if self.call.x_format is FLOAT64:  # with exponents, which the sums of the core lack
            return self._reference.tier2_columns(columns)
        if _is_wide(self.call):
            return Strips(self.call, columns)
        return self._reference.tier2_dgamma(columns)

    def exact_dbeta(self, columns: Columns) -> Any:
        """Return an exact sum of some columns."""
        return self._reference.exact_dbeta(columns)


def rows_of_fast_block(count: int, size: int) -> int:
    """Return the number of rows with sums of their own in fast mode, as in `calls.c`."""
    rows = max(2**15 // size, -(-count // 8))
    return min(512, -(-rows // 4) * 4)


class _Sums:
    """The accumulators of a backward pass, side by side in one array."""

    def __init__(self, numbers: int, size: int) -> None:
        self.array = np.zeros((numbers, size))

    def merge(self, other: Any) -> None:
        """Add the sums over other rows."""
        _core.merge(self.array, other.array)

    def note_magnitudes(self, rows: int, smallest: int, largest: int) -> None:
        """Note the magnitudes of dy, if the exactness of the sums depends on them."""

    def fixed_point_dbeta(self) -> FixedPointSum | None:
        """Return the sum of dy, or None if it is not exact."""
        pairs = self._exact_dbeta()
        if pairs is None:
            return None
        total = FixedPointSum(pairs.shape[1])
        total.add(pairs.copy())
        return total

    def _exact_dbeta(self) -> Float64 | None:
        """Return the pairs of dbeta, or None if they are not exact."""
        return None


class CorrectSums(_Sums):
    """dgamma as pairs with a bound, and dbeta as pairs; for types of at most float32.

    dbeta is exact unless the magnitudes of dy are too far apart.
    """

    def __init__(self, size: int) -> None:
        super().__init__(SUMS, size)
        self._rows, self._smallest, self._largest = 0, 0xFFFFFFFF, 0

    def merge(self, other: "CorrectSums") -> None:
        """Add the sums over other rows."""
        super().merge(other)
        self.note_magnitudes(other._rows, other._smallest, other._largest)

    def note_magnitudes(self, rows: int, smallest: int, largest: int) -> None:
        """Note the number of rows, and the magnitudes of their dy."""
        self._rows += rows
        self._smallest = min(self._smallest, smallest)
        self._largest = max(self._largest, largest)

    def dgamma(self, target: FloatFormat) -> Tested:
        """Round the sums whose bound allows it."""
        high, low, bound = self.array[:3]
        total = high + low
        error = SLACK * (bound + 2 * U * np.abs(total))  # (E13)
        return same_roundings(round_to(total - error, target), round_to(total + error, target))

    def dbeta(self, target: FloatFormat) -> Tested:
        """Round the sums if they are exact."""
        size = self.array.shape[1]
        pairs = self._exact_dbeta()
        if pairs is None:
            return Tested(round_to(np.zeros(size), target), np.ones(size, bool))
        values = round_pair(*two_sum(*pairs), np.zeros(size, np.int64), target)
        return Tested(values, np.zeros(size, bool))

    def _exact_dbeta(self) -> Float64 | None:
        is_exact = _core.is_exact_sum(self._smallest, self._largest, self._rows)
        return self.array[3:] if is_exact else None


class FastSums(_Sums):
    """dgamma and dbeta in float64, in fast mode for types of at most float32."""

    def __init__(self, size: int) -> None:
        super().__init__(2, size)

    def merge(self, other: "FastSums") -> None:
        """Add the sums over other rows."""
        self.array += other.array

    def dgamma(self, target: FloatFormat) -> Tested:
        """Round the sums without a test."""
        return self._rounded(0, target)

    def dbeta(self, target: FloatFormat) -> Tested:
        """Round the sums without a test."""
        return self._rounded(1, target)

    def _rounded(self, k: int, target: FloatFormat) -> Tested:
        return Tested(round_to(self.array[k], target), np.zeros(self.array.shape[1], bool))


class Sums64(_Sums):
    """dgamma and dbeta as pairs, each with a bound in correct mode, for float64 rows."""

    def __init__(self, size: int, numbers: int) -> None:
        super().__init__(2 * numbers, size)
        self._numbers = numbers

    def dgamma(self, target: FloatFormat) -> Tested:
        """Round the sums whose bound allows it; in fast mode those that are finite."""
        return self._rounded(self.array[: self._numbers], target)

    def dbeta(self, target: FloatFormat) -> Tested:
        """Round the sums whose bound allows it; in fast mode those that are finite."""
        return self._rounded(self.array[self._numbers :], target)

    def _rounded(self, numbers: Float64, target: FloatFormat) -> Tested:
        high, low = two_sum(numbers[0], numbers[1])
        exponents = np.zeros(len(high), np.int64)
        if self._numbers == 2:
            values = round_pair(high, low, exponents, target)
            return Tested(values, ~np.isfinite(high + low))
        return _rounded_pairs(high, low, numbers[2], target)

    def _exact_dbeta(self) -> Float64 | None:
        high, low, *bounds = self.array[self._numbers :]
        if not bounds or bounds[0].any() or not np.isfinite(high).all():
            return None
        return np.stack([high, low])


def _rounded_pairs(high: Float64, low: Float64, bound: Float64, target: FloatFormat) -> Tested:
    """Round normalized pairs whose bound allows it."""
    error = SLACK * (bound + np.where(bound > 0, U * np.abs(low), 0.0))
    undecided = ~np.isfinite(high + error)
    exponents = np.zeros(len(high), np.int64)
    ends = [
        round_pair(*two_sum(np.where(undecided, 0, high), low + part), exponents, target)
        for part in (-error, error)
    ]
    tested = same_roundings(*ends)
    tested.undecided[undecided] = True
    return tested


class Strips(_Sweep):
    """Some columns of dgamma in double-double, of rows of at most float32."""

    def __init__(self, call: Call, columns: Columns) -> None:
        super().__init__(call)
        self._columns = columns
        self._firsts = np.unique(columns // _core.STRIP * _core.STRIP).astype(np.int64)

    def sums(self) -> "StripSums":
        """Return zeroed accumulators."""
        return StripSums(self._columns, self._firsts)

    def add(self, dy: Stored, x: Stored, sums: "StripSums") -> None:
        """Add a block of rows."""
        if len(x):
            _core.add_strips(dy, x, self._firsts, sums.array, self.call.eps, self._mode)


class StripSums:
    """Sums of strips of dgamma as pairs with a bound; some of their columns are wanted."""

    def __init__(self, columns: Columns, firsts: NDArray[np.int64]) -> None:
        strips = np.searchsorted(firsts, columns // _core.STRIP * _core.STRIP)
        self._wanted = strips, columns - firsts[strips]
        self.array = np.zeros((len(firsts), 3, _core.STRIP))

    def merge(self, other: "StripSums") -> None:
        """Add the sums over other rows."""
        (high, low, bound), (high2, low2, bound2) = (
            each.array.transpose(1, 0, 2) for each in (self, other)
        )
        total, error = two_sum(high, high2)
        rest = low + low2 + error
        bound += bound2 + 4 * U * (np.abs(rest) + np.abs(low2) + np.abs(error))
        high[...], low[...] = total, rest

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums whose bound allows it."""
        strips, lanes = self._wanted
        high, low, bound = self.array[strips, :, lanes].T
        return _rounded_pairs(*two_sum(high, low), bound, target)


class DgammaSum:
    """Limbs that are not carried yet, and the sum over rows that the core left undecided."""

    def __init__(self, size: int, undecided: FixedPointTotal) -> None:
        self.limbs = np.zeros((_core.PLACES, size + 1), np.int64)
        self.undecided = undecided

    def merge(self, other: "DgammaSum") -> None:
        """Add the sums over other rows."""
        self.limbs += other.limbs
        self.undecided.merge(other.undecided)

    def number(self) -> FixedPoint:
        """Return the sums in canonical form; the last column is the sum of all units."""
        return canonical(_core.FIRST_PLACE, self.limbs.copy()).plus(self.undecided.number())


class FixedPointDgamma:
    """The fixed-point sum of dgamma; the reference adds rows that tier 2 leaves undecided."""

    def __init__(self, call: Call, reference: Backend) -> None:
        self._call = call
        self._reference = reference.fixed_point_dgamma(call)
        self._mode = _mode(call)

    def sums(self) -> DgammaSum:
        """Return zeroed accumulators."""
        return DgammaSum(self._call.size, self._reference.sums())

    def add(self, dy: Stored, x: Stored, status: RowStatus | None, sums: DgammaSum) -> None:
        """Add the rows of a block that are OK or UNDECIDED; None means all of them."""
        if len(x) == 0:
            return
        if status is None:
            status = np.full(len(x), OK, np.uint8)
        undecided = np.zeros(len(x), np.uint8)
        eps = self._call.eps
        if _core.add_terms(dy, x, status, undecided, sums.limbs, eps, self._mode):
            some = undecided != 0
            self._reference.add(dy[some], x[some], None, sums.undecided)
