"""Fast mode, for types of at most float32: the last bit for speed.

Sums over rows are taken over blocks that depend on the number of rows alone, and the blocks are
added in a fixed tree: bits depend neither on threads nor on the batch a row stands in.
"""

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.backend import NeverRefuses, States
from truenorm.kernels.call import Call
from truenorm.kernels.fused.compiled.single import backward, forward
from truenorm.kernels.fused.compiled.single.backward import FOUR
from truenorm.kernels.fused.narrow import kept_anew
from truenorm.kernels.fused.scratch import aligned
from truenorm.kernels.fused.sweep import ForwardSweep, Sweep
from truenorm.kernels.rounding import Tested, round_to
from truenorm.kernels.rows import Range, blocks_of
from truenorm.kernels.storage import Stored

__all__ = [
    "BlockSums",
    "SingleBackward",
    "SingleForward",
    "parts_with_sums",
    "rows_with_sums",
]

Float64 = NDArray[np.float64]


class SingleForward(ForwardSweep, NeverRefuses):
    """Forward in float32 where that will do."""

    def look(self, x: Stored, y: Stored, kept: Float64, states: States) -> bool:
        """Write y, what is kept and what became of each row; return whether some are not done."""
        return self.first_look(forward.forward, x, y, kept, states) > 0


class BlockSum:
    """The sums of columns over a block, in float64."""

    def __init__(self, total: Float64) -> None:
        self._total = total

    def merge(self, other: "BlockSum") -> None:
        """Add the sums over other rows."""
        self._total += other._total

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums as they are."""
        return Tested(round_to(self._total, target), np.zeros(len(self._total), bool))


class BlockSums:
    """Both sums, side by side in one array."""

    def __init__(self, columns: int) -> None:
        self.array = aligned(2 * columns).reshape(2, columns)
        self.array[...] = 0
        self.dgamma, self.dbeta = BlockSum(self.array[0]), BlockSum(self.array[1])

    def note(self, _rows: int, left: int) -> int:
        """Return how many rows are not done: that is all a kernel returns."""
        return left

    def merge(self, other: "BlockSums") -> None:
        """Add the sums over other rows."""
        self.array += other.array


class SingleBackward(Sweep, NeverRefuses):
    """Backward in float32 where that will do."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.rows_at_once = rows_with_sums(call.count, call.size)
        self.parts = parts_with_sums(call.count, call.size)

    def sums(self) -> BlockSums:
        """Return sums over no rows."""
        return BlockSums(self.call.size)

    def adopt(self, x: Stored, kept: Float64) -> bool:
        """Find anew what forward keeps; return whether a row does not have the mean it had."""
        return kept_anew(self, x, kept)

    def look(
        self, dy: Stored, x: Stored, kept: Float64, dx: Stored, sums: BlockSums, states: States
    ) -> bool:
        """Write dx and what became of rows, and add to the sums; return whether some are left."""
        return self.first_look_back(backward.backward, dy, x, kept, dx, sums, states) > 0


def parts_with_sums(count: int, size: int) -> list[Range]:
    """Return the rows that have sums of their own, and last none: those left out at first."""
    return [*blocks_of((0, count), rows_with_sums(count, size)), (count, count)]


def rows_with_sums(count: int, size: int) -> int:
    """Return how many rows have sums of their own, at most 512: an eighth, or 2**17 elements."""
    rows = max(2**17 // size, -(-count // 8), 1)
    return min(512, -(-rows // FOUR) * FOUR)
