"""What the driver needs of the C core: blocks of rows, with layouts and special values its own."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.call import TYPE_CODES, Call, Flags
from truenorm.kernels.double_double import two_sum
from truenorm.kernels.fixed_point import (
    AfterLevel,
    DgammaTotal,
    FixedPoint,
    FixedPointSum,
    canonical,
)
from truenorm.kernels.native import _core
from truenorm.kernels.protocol import Backend, NoFallback, RowStatus
from truenorm.kernels.rounding import Tested, round_pair, round_to, same_roundings
from truenorm.kernels.rows import Range, Stored, blocks_of
from truenorm.kernels.tuning import OK, SLACK, SUMS, U
from truenorm.threads import thread_count

Float64 = NDArray[np.float64]
Columns = NDArray[np.intp]

BLOCK = 2**18
"""Elements of a block of rows that one call of the core works on."""


def mode_of_types(target: FloatFormat) -> int:
    """Return the bits of a mode for rows and parameters of a type."""
    return TYPE_CODES[target.name] * 0x1110


class _Sweep:
    """A sweep over all rows, in blocks that are shared among threads."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.threads = thread_count(call.threads)
        self.rows_at_once = max(1, BLOCK // call.size)
        self.parts: list[Range] = list(blocks_of((0, call.count), self.rows_at_once)) or [(0, 0)]
        centred = _core.CENTRED if call.norm.centred else 0
        fast = _core.FAST if call.arithmetic in ("fast32", "fast64") else 0
        self._mode = centred | fast | mode_of_types(call.x_format)
        # Narrower parameters are exact in float32, or float64 beside float64 rows.
        dtype = np.float64 if call.x_format is FLOAT64 else np.float32
        self._gamma = call.gamma.astype(dtype)
        self._beta = call.beta.astype(dtype)


class _BackwardSweep(_Sweep):
    """What backward passes of all types and modes have in common."""

    def recompute_saved(self, x: Stored, saved: Float64) -> bool:
        """Recompute the saved statistics; return True if a row mean changed."""
        return len(x) > 0 and _core.statistics(x, saved, self._mode) > 0

    def compute(
        self, dy: Stored, x: Stored, saved: Float64, dx: Stored, sums: Any, status: RowStatus
    ) -> bool:
        """Compute dx and the row status, and add to the sums; return True if some are not OK."""
        if len(x) == 0:
            return False
        left, *extent = _core.backward_rows(
            dy, x, self._gamma, saved, dx, sums.array, status, self.call.eps, self._mode
        )
        self._note_magnitudes(sums, len(x), *extent)
        return left > 0

    def _note_magnitudes(self, sums: Any, rows: int, smallest: int, largest: int) -> None:
        """Take note of the magnitudes of dy, where exactness depends on them."""

    def _take_fast_blocks(self) -> None:
        """Give each block of rows sums of its own, as in `calls.c`."""
        call = self.call
        self.rows_at_once = rows_of_fast_block(call.count, call.size)
        # The last part is for rows that are left out at first.
        self.parts = [*blocks_of((0, call.count), self.rows_at_once), (call.count, call.count)]


class FastForward(_Sweep, NoFallback):
    """Forward in fast mode."""

    def compute(self, x: Stored, y: Stored, saved: Float64, status: RowStatus) -> bool:
        """Compute y, the saved statistics and the row status; return True if some are not OK."""
        if len(x) == 0:
            return False
        eps = self.call.eps
        left = _core.forward_rows(x, self._gamma, self._beta, y, saved, status, eps, self._mode)
        return left > 0


class CorrectForward(FastForward):
    """Forward, correctly rounded; the reference continues where double-double is undecided."""

    def __init__(self, call: Call, reference: Backend) -> None:
        super().__init__(call)
        self._reference = reference

    def recompute(self, x: Stored, saved: Float64, y: Stored) -> Flags:
        """Recompute undecided rows; return the elements that remain undecided."""
        return self._reference.forward(self.call).recompute(x, saved, y)


class _Dgamma:
    """dgamma as pairs with a bound."""

    def __init__(self, array: Float64) -> None:
        self._array = array

    def merge(self, other: "_Dgamma") -> None:
        """Not used: `CorrectSums` merges both sums at once."""
        raise NotImplementedError

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums whose bound allows it."""
        high, low, bound = self._array[:3]
        total = high + low
        error = SLACK * (bound + 2 * U * np.abs(total))  # (E13)
        return same_roundings(round_to(total - error, target), round_to(total + error, target))


class _Dbeta:
    """dbeta as pairs, exact unless the magnitudes of dy are too far apart."""

    def __init__(self, array: Float64) -> None:
        self._array = array
        self.rows, self.smallest, self.largest = 0, 0xFFFFFFFF, 0

    def merge(self, other: "_Dbeta") -> None:
        """Take note of the rows of another sum."""
        self.note(other.rows, other.smallest, other.largest)

    def note(self, rows: int, smallest: int, largest: int) -> None:
        """Take note of rows, and of the magnitudes of their dy."""
        self.rows += rows
        self.smallest, self.largest = min(self.smallest, smallest), max(self.largest, largest)

    @property
    def _is_exact(self) -> bool:
        return _core.is_exact_sum(self.smallest, self.largest, self.rows)

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums if they are exact."""
        size = self._array.shape[1]
        if not self._is_exact:
            return Tested(round_to(np.zeros(size), target), np.ones(size, bool))
        high, low = two_sum(*self._array[3:])
        values = round_pair(high, low, np.zeros(size, np.int64), target)
        return Tested(values, np.zeros(size, bool))

    def as_fixed_point(self) -> FixedPointSum | None:
        """Return the sums if they are exact."""
        if not self._is_exact:
            return None
        digits = FixedPointSum(self._array.shape[1])
        digits.add(self._array[3:].copy())
        return digits


class CorrectSums:
    """Sums over rows, side by side in one array."""

    def __init__(self, size: int) -> None:
        self.array = np.zeros((SUMS, size))
        self.dgamma, self.dbeta = _Dgamma(self.array), _Dbeta(self.array)

    def merge(self, other: "CorrectSums") -> None:
        """Add the sums over other rows."""
        _core.merge(self.array, other.array)
        self.dbeta.merge(other.dbeta)


class CorrectBackward(_BackwardSweep):
    """Backward, correctly rounded; the reference continues where double-double is undecided."""

    def __init__(self, call: Call, reference: Backend) -> None:
        super().__init__(call)
        self._reference = reference.backward(call)

    def sums(self) -> CorrectSums:
        """Return zeroed accumulators."""
        return CorrectSums(self.call.size)

    def _note_magnitudes(self, sums: CorrectSums, rows: int, smallest: int, largest: int) -> None:
        sums.dbeta.note(rows, smallest, largest)

    def recompute(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Recompute undecided rows; return the elements that remain undecided."""
        return self._reference.recompute(dy, x, dx)

    def tier2_dgamma(self, columns: Columns) -> Any:
        """Return a tier-2 sum of some columns."""
        return self._reference.tier2_dgamma(columns)

    def exact_dbeta(self, columns: Columns) -> Any:
        """Return an exact sum of some columns."""
        return self._reference.exact_dbeta(columns)


class _FastSum:
    """The sum of columns over rows, in float64."""

    def __init__(self, total: Float64) -> None:
        self._total = total

    def merge(self, other: "_FastSum") -> None:
        """Not used: `FastSums` merges both sums at once."""
        raise NotImplementedError

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums as they are."""
        return Tested(round_to(self._total, target), np.zeros(len(self._total), bool))


class FastSums:
    """Sums over a block of rows in fast mode."""

    def __init__(self, size: int) -> None:
        self.array = np.zeros((2, size))
        self.dgamma, self.dbeta = _FastSum(self.array[0]), _FastSum(self.array[1])

    def merge(self, other: "FastSums") -> None:
        """Add the sums over other rows."""
        self.array += other.array


class FastBackward(_BackwardSweep, NoFallback):
    """Backward in fast mode. Each block of rows has sums of its own, as in `calls.c`."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._take_fast_blocks()

    def sums(self) -> FastSums:
        """Return zeroed accumulators."""
        return FastSums(self.call.size)


def rows_of_fast_block(count: int, size: int) -> int:
    """Return how many rows have sums of their own: the same number as in `calls.c`."""
    rows = max(2**15 // size, -(-count // 8))
    return min(512, -(-rows // 4) * 4)


# ---- float64 ----


class Forward64(FastForward):
    """Forward on float64 rows in either mode; the reference continues with undecided rows."""

    def __init__(self, call: Call, reference: Backend) -> None:
        super().__init__(call)
        self._backend = reference

    def compute(self, x: Stored, y: Stored, saved: Float64, status: RowStatus) -> bool:
        """Compute y, the saved statistics and the row status; return True if some are not OK."""
        left = super().compute(x, y, saved, status)
        far = np.flatnonzero(np.isneginf(saved[:, -1])) if left else ()
        if len(far):  # what the core could not hold without powers of two
            saved[far] = self._reference.saved_statistics(x[far])
        return left

    @cached_property
    def _reference(self) -> Any:
        # Not before it is needed: the reference logs how long it may take.
        return self._backend.forward(self.call)

    def recompute(self, x: Stored, saved: Float64, y: Stored) -> Flags:
        """Recompute undecided rows; return the elements that remain undecided."""
        flags: Flags = self._reference.recompute(x, saved, y)
        return flags


class _Pairs:
    """The sum of columns over rows as pairs, with a bound on their error, or none."""

    def __init__(self, high: Float64, low: Float64, bound: Float64 | None) -> None:
        self._pair, self._bound = (high, low), bound

    def merge(self, other: "_Pairs") -> None:
        """Not used: `Sums64` merges both sums at once."""
        raise NotImplementedError

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums whose bound allows it; in fast mode those that are finite."""
        high, low = two_sum(*self._pair)
        exponents = np.zeros(len(high), np.int64)
        if self._bound is None:
            values = round_pair(high, low, exponents, target)
            return Tested(values, ~np.isfinite(high + low))
        error = SLACK * (self._bound + np.where(self._bound > 0, U * np.abs(low), 0.0))
        undecided = ~np.isfinite(high + error)
        ends = [
            round_pair(*two_sum(np.where(undecided, 0, high), low + part), exponents, target)
            for part in (-error, error)
        ]
        tested = same_roundings(*ends)
        tested.undecided[undecided] = True
        return tested

    def as_fixed_point(self) -> FixedPointSum | None:
        """Return the sums if they are exact."""
        if self._bound is None or self._bound.any() or not np.isfinite(self._pair[0]).all():
            return None
        digits = FixedPointSum(len(self._pair[0]))
        digits.add(np.stack(self._pair))
        return digits


class Sums64:
    """Sums over rows, side by side in one array: dgamma, then dbeta."""

    def __init__(self, size: int, numbers: int) -> None:
        self.array = np.zeros((2 * numbers, size))
        bounds = (self.array[2], self.array[5]) if numbers == 3 else (None, None)
        self.dgamma = _Pairs(self.array[0], self.array[1], bounds[0])
        self.dbeta = _Pairs(self.array[numbers], self.array[numbers + 1], bounds[1])

    def merge(self, other: "Sums64") -> None:
        """Add the sums over other rows."""
        _core.merge(self.array, other.array)


class CorrectBackward64(_BackwardSweep):
    """Backward on float64 rows; the reference continues with undecided rows and columns."""

    numbers = 3
    """A pair and a bound for each column of dgamma and of dbeta."""

    def __init__(self, call: Call, reference: Backend) -> None:
        super().__init__(call)
        self._backend = reference

    @cached_property
    def _reference(self) -> Any:
        return self._backend.backward(self.call)

    def sums(self) -> Sums64:
        """Return zeroed accumulators."""
        return Sums64(self.call.size, self.numbers)

    def recompute_saved(self, _x: Stored, _saved: Float64) -> bool:
        """Take the saved statistics as they are: only the mean is compared."""
        return False

    def recompute(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Recompute undecided rows; return the elements that remain undecided."""
        flags: Flags = self._reference.recompute(dy, x, dx)
        return flags

    def tier2_dgamma(self, columns: Columns) -> Any:
        """Return a sum of some columns with powers of two of their own."""
        return self._reference.tier2_columns(columns)

    def exact_dbeta(self, columns: Columns) -> Any:
        """Return an exact sum of some columns."""
        return self._reference.exact_dbeta(columns)


class FastBackward64(CorrectBackward64):
    """Backward on float64 rows in fast mode."""

    numbers = 2
    """A pair for each column of dgamma and of dbeta."""

    def __init__(self, call: Call, reference: Backend) -> None:
        super().__init__(call, reference)
        self._take_fast_blocks()

    def recompute_saved(self, x: Stored, saved: Float64) -> bool:
        """Recompute the saved statistics; return True if a row mean changed."""
        return _BackwardSweep.recompute_saved(self, x, saved)


Integers = NDArray[np.int64]


class DgammaSum:
    """Limbs that are not carried yet, and the sums of rows that the core left undecided."""

    def __init__(self, size: int, undecided: DgammaTotal) -> None:
        self.limbs = np.zeros((_core.PLACES, size + 1), np.int64)
        self.undecided = undecided

    def merge(self, other: "DgammaSum") -> None:
        """Add the sums over other rows."""
        self.limbs += other.limbs
        self.undecided.merge(other.undecided)

    def number(self) -> FixedPoint:
        """Return the sums in canonical form; the last column is the sum of all units."""
        return canonical(_core.FIRST_PLACE, self.limbs.copy()).plus(self.undecided.number())


class FixedPointDgamma(AfterLevel):
    """dgamma of a call in fixed point; the reference continues where tier 2 is undecided."""

    def __init__(self, call: Call, reference: Backend) -> None:
        self._call = call
        self._reference = reference.fixed_point_dgamma(call)
        centred = _core.CENTRED if call.norm.centred else 0
        self._mode = centred | mode_of_types(call.x_format)

    def sums(self) -> DgammaSum:
        """Return zeroed accumulators."""
        return DgammaSum(self._call.size, self._reference.sums())

    def add(self, dy: Stored, x: Stored, status: RowStatus | None, sums: DgammaSum) -> None:
        """Add the rows that have a result and finite dy."""
        if len(x) == 0:
            return
        if status is None:
            status = np.full(len(x), OK, np.uint8)
        undecided = np.zeros(len(x), np.uint8)
        eps = self._call.eps
        if _core.add_terms(dy, x, status, undecided, sums.limbs, eps, self._mode):
            some = undecided != 0
            self._reference.add(dy[some], x[some], None, sums.undecided)
