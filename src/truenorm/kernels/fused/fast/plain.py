"""Fast mode, for float64 data: plain float64, and pairs for rows that are too large or small.

Sums over rows are taken over the same blocks as for other types.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.backend import States
from truenorm.kernels.call import Call
from truenorm.kernels.fused.compiled.columns.column_sums import (
    add_to_pairs,
    merge_dbeta,
    merge_dgamma,
)
from truenorm.kernels.fused.compiled.pairs.rows import keep_rows
from truenorm.kernels.fused.compiled.plain import backward, forward
from truenorm.kernels.fused.fast.single import parts_with_sums, rows_with_sums
from truenorm.kernels.fused.pairs import GradientByPairs, PairForward, largest_exponent
from truenorm.kernels.fused.scratch import aligned, scratch_of_pairs
from truenorm.kernels.fused.sums.columns import PairColumns
from truenorm.kernels.ground import (
    DBETA_HIGH,
    DBETA_LOW,
    DGAMMA_HIGH,
    NOT_FINITE,
    REFUSED,
    SUMS,
)
from truenorm.kernels.rounding import Tested, round_to
from truenorm.kernels.rows import Source
from truenorm.kernels.storage import Stored

__all__ = ["PlainBackward", "PlainForward", "PlainSums"]

Float64 = NDArray[np.float64]
Columns = NDArray[np.intp]


class PlainForward(PairForward):
    """Forward in float64 where that will do."""

    def look(self, x: Stored, y: Stored, kept: Float64, states: States) -> bool:
        """Write y, what is kept and what became of each row; return whether some are not done."""
        left = self.first_look(forward.forward, x, y, kept, states)
        if left == 0:
            return False
        if left < 0:  # gamma is too large or too small, for all rows
            states[...] = REFUSED
        rows = np.flatnonzero(states == REFUSED)
        if len(rows):
            given, numbers, outcome = x[rows], kept[rows], states[rows]
            results = np.empty_like(given)
            super().look(given, results, numbers, outcome)
            y[rows], kept[rows], states[rows] = results, numbers, outcome
        return bool(states.any())


class PlainSum:
    """Pairs (high, low) for each column, rounded as they are unless they left the range."""

    def __init__(self, array: Float64, high: int, merge: Callable[[Float64, Float64], None]):
        self._array = array
        self._high = high
        self._merge = merge
        self.may_underflow = False

    def merge(self, other: "PlainSum") -> None:
        """Add the sums over other rows."""
        self._merge(self._array, other._array)
        self.may_underflow |= other.may_underflow

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums; terms may have overflown though their sum does not, or underflown."""
        total = self._array[self._high] + self._array[self._high + 1]
        refused = ~np.isfinite(total)
        if self.may_underflow:
            refused |= np.abs(total) < 2.0**-980
        return Tested(round_to(total, target), refused)


class PlainSums:
    """Both sums, side by side in one array: see `kernels.ground`."""

    def __init__(self, size: int) -> None:
        self.array = aligned(SUMS * size).reshape(SUMS, size)
        self.array[...] = 0
        self.dgamma = PlainSum(self.array, DGAMMA_HIGH, merge_dgamma)
        self.dbeta = PlainSum(self.array, DBETA_HIGH, merge_dbeta)

    def note(self, _rows: int, found: tuple[int, bool]) -> int:
        """Note what a kernel returned; return how many rows are not done."""
        left, some_are_tiny = found
        self.dgamma.may_underflow |= some_are_tiny
        return left

    def merge(self, other: "PlainSums") -> None:
        """Add the sums over other rows."""
        self.dgamma.merge(other.dgamma)
        self.dbeta.merge(other.dbeta)


class PlainBackward(GradientByPairs):
    """Backward in float64 where that will do."""

    def __init__(self, call: Call, dy: Source) -> None:
        super().__init__(call)
        self.rows_at_once = rows_with_sums(call.count, call.size)
        self.parts = parts_with_sums(call.count, call.size)
        self._dy = dy

    def sums(self) -> PlainSums:
        """Return sums over no rows."""
        return PlainSums(self.call.size)

    def adopt(self, _x: Stored, _kept: Float64) -> bool:
        """Take what another backend keeps: it is what pairs keep, so pairs do all rows."""
        return False

    def look(
        self, dy: Stored, x: Stored, kept: Float64, dx: Stored, sums: PlainSums, states: States
    ) -> bool:
        """Write dx and what became of rows, and add to the sums; return whether some are left."""
        left = self.first_look_back(backward.backward, dy, x, kept, dx, sums, states)
        if left == 0:
            return False
        rows = np.flatnonzero(states == REFUSED)
        if len(rows):
            found, outcome = self._by_pairs(dy[rows], x[rows], kept[rows], sums)
            dx[rows], states[rows] = found, outcome
        return bool(states.any())

    def _by_pairs(
        self, dy: Stored, x: Stored, kept: Float64, sums: PlainSums
    ) -> tuple[Stored, States]:
        """Do copies of some rows: return dx and what became of them, and add to the sums."""
        by_plain = np.flatnonzero(kept[:, -1] >= 0)
        kept[by_plain] = self._kept_by_pairs(x[by_plain])
        dx, states = np.empty_like(x), np.empty(len(x), np.uint8)
        self.add_rows(dy, x, kept, dx, sums.array, states, 0)
        sums.dgamma.may_underflow = True
        for slopes, state in zip(dy, states.tolist(), strict=True):
            if state != NOT_FINITE:
                add_to_pairs(sums.array[DBETA_HIGH], sums.array[DBETA_LOW], slopes)
        return dx, states

    def _kept_by_pairs(self, x: Stored) -> Float64:
        """Return what pairs would have kept of some rows."""
        kept = np.empty((len(x), self.call.norm.numbers_kept))
        space = aligned(scratch_of_pairs(self.call.size))
        keep_rows(self.coded(x), self.call.eps, self.centred, kept, space)
        return kept

    def dgamma_again(self, columns: Columns) -> PairColumns:
        """Return how to know some columns whatever the range."""
        return PairColumns(self.call, columns, largest_exponent(self, self._dy))
