"""Fast mode, for types of at most float32: the last bit for speed.

Sums over rows are taken over blocks that depend on the number of rows alone, and the blocks are
added in a fixed tree: bits depend neither on threads nor on the batch a row stands in.
"""

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.backend import NeverRefuses, States
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.fused.blocks import LONG
from truenorm.kernels.fused.compiled.single import backward, forward
from truenorm.kernels.fused.compiled.single.forward import LARGEST
from truenorm.kernels.fused.narrow import kept_anew
from truenorm.kernels.fused.scratch import aligned, scratch_of_fast_backward, scratch_of_forward
from truenorm.kernels.fused.sweep import ForwardSweep, Sweep
from truenorm.kernels.rounding import Tested, round_to
from truenorm.kernels.rows import blocks_of
from truenorm.kernels.storage import Stored

__all__ = ["SingleBackward", "SingleForward"]

Float64 = NDArray[np.float64]


class SingleForward(ForwardSweep, NeverRefuses):
    """Forward in float32 where that will do."""

    def __init__(self, call: Call, special: Flags) -> None:
        super().__init__(call, special)
        gamma_and_beta = self.parameters.columns[:2]
        too_large = np.abs(gamma_and_beta).max() > LARGEST
        self._single = gamma_and_beta[:, : 0 if too_large else None].astype(np.float32)

    def look(self, x: Stored, y: Stored, kept: Float64, states: States) -> bool:
        """Write y, what is kept and what became of each row; return whether some are not done."""
        forward.forward(
            self.coded(x),
            *self.parameters,
            self._single,
            self.call.eps,
            self.centred,
            self.coded(y),
            kept,
            states,
            aligned(scratch_of_forward(self.call.size)),
        )
        return bool(states.any())


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

    def merge(self, other: "BlockSums") -> None:
        """Add the sums over other rows."""
        self.array += other.array


class SingleBackward(Sweep, NeverRefuses):
    """Backward in float32 where that will do."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.rows_at_once = _rows_with_sums(call.count, call.size)
        # The last part has no rows but those that are left out at first.
        self.parts = [*blocks_of((0, call.count), self.rows_at_once), (call.count, call.count)]
        self._gamma = call.gamma.astype(np.float32)  # exactly

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
        left: int = backward.backward(
            self.coded(dy),
            self.coded(x),
            kept,
            self._gamma,
            self.call.eps,
            self.centred,
            self.coded(dx),
            sums.array,
            states,
            aligned(scratch_of_fast_backward(self.call.size)),
        )
        return left > 0


def _rows_with_sums(count: int, size: int) -> int:
    """Return how many rows have sums of their own: 512, and less where that is too few blocks."""
    if size >= LONG:  # the sums of a block are as long as a row
        return min(512, max(4, -(-count // 4)))
    return min(512, max(32, -(-count // 256) * 32))
