"""Levels 0 and 2: rows in double-double, where a float64 takes part or level 1 refuses."""

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.backend import States
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.fused.compiled.pairs import backward, columns, forward
from truenorm.kernels.fused.scratch import aligned, scratch_of_pairs
from truenorm.kernels.fused.sums.columns import DigitColumns, Sums
from truenorm.kernels.fused.sweep import ForwardSweep, Sweep
from truenorm.kernels.rows import Source
from truenorm.kernels.storage import Stored
from truenorm.kernels.sweeping import in_parts

__all__ = [
    "GradientByPairs",
    "PairBackward",
    "PairForward",
    "largest_exponent",
    "look_again_at_dx",
]

Float64 = NDArray[np.float64]
Columns = NDArray[np.intp]


class PairForward(ForwardSweep):
    """Forward in double-double with the rounding test."""

    def look(self, x: Stored, y: Stored, kept: Float64, states: States) -> bool:
        """Write y, what is kept and what became of each row; return whether some are not done."""
        self._run(x, y, kept, states)
        return bool(states.any())

    def look_again(self, x: Stored, kept: Float64, y: Stored) -> Flags:
        """Find out which elements are refused: nothing short of integers knows better."""
        return self._run(x, y, kept, np.empty(len(x), np.uint8))

    def _run(self, x: Stored, y: Stored, kept: Float64, states: States) -> Flags:
        refused = np.empty(x.shape, np.bool_)
        forward.forward(
            self.coded(x),
            *self.parameters,
            self.call.eps,
            self.centred,
            self.coded(y),
            kept,
            states,
            refused,
            aligned(scratch_of_pairs(self.call.size)),
        )
        return refused


class GradientByPairs(Sweep):
    """dx in double-double with the rounding test; gamma is scaled by a power of two."""

    lattice = None

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._gamma_exponent = int(backward.largest_exponent(call.gamma))
        self._scaled_gamma = np.ldexp(call.gamma, -self._gamma_exponent)

    def add_rows(
        self,
        dy: Stored,
        x: Stored,
        kept: Float64,
        dx: Stored,
        sums: Float64,
        states: States,
        dy_exponent: int,
    ) -> None:
        """Write dx and what became of rows, and add to dgamma, with dy scaled likewise."""
        columns.backward(
            self.coded(dy),
            self.coded(x),
            kept,
            self._scaled_gamma,
            np.array([self.call.eps, self._gamma_exponent, dy_exponent]),
            self.centred,
            self.coded(dx),
            sums,
            states,
            aligned(scratch_of_pairs(self.call.size)),
        )

    def look_again(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Find out which elements are refused: nothing short of integers knows better."""
        everywhere = np.ones(x.shape, np.bool_)
        gamma = self._scaled_gamma, self._gamma_exponent
        return look_again_at_dx(self, dy, x, dx, gamma, everywhere)

    def dbeta_again(self, some: Columns) -> DigitColumns:
        """Return how to know some columns exactly."""
        return DigitColumns(self.call, some)


class PairBackward(GradientByPairs):
    """Backward in double-double; all dy are scaled by one power of two for dgamma."""

    def __init__(self, call: Call, dy: Source) -> None:
        super().__init__(call)
        self._dy_exponent = largest_exponent(self, dy)

    def sums(self) -> Sums:
        """Return sums over no rows."""
        return Sums(self.call.size, None, self._dy_exponent)

    def adopt(self, _x: Stored, _kept: Float64) -> bool:
        """Take what other backends keep as it is: only the mean is compared."""
        return False

    def look(
        self, dy: Stored, x: Stored, kept: Float64, dx: Stored, sums: Sums, states: States
    ) -> bool:
        """Write dx and what became of rows, and add to the sums; return whether some are left."""
        self.add_rows(dy, x, kept, dx, sums.array, states, self._dy_exponent)
        return bool(states.any())

    def dgamma_again(self, _columns: Columns) -> None:
        """Return nothing: only integers know better."""


def largest_exponent(sweep: Sweep, dy: Source) -> int:
    """Return the exponent of the largest dy that is finite."""
    blocks = sweep.every_block()
    found = [0] * len(blocks)

    def work(k: int) -> None:
        found[k] = int(columns.largest_exponent_of_rows(sweep.coded(dy.block(*blocks[k]))))

    in_parts(work, len(blocks), sweep.threads)
    return max(found)


def look_again_at_dx(
    sweep: Sweep, dy: Stored, x: Stored, dx: Stored, gamma: tuple[Float64, int], refused: Flags
) -> Flags:
    """Do dx of some rows in double-double, near what is refused; return what still is.

    gamma is scaled by a power of two.
    """
    backward.settle_dx(
        sweep.coded(dy),
        sweep.coded(x),
        *gamma,
        sweep.call.eps,
        sweep.centred,
        sweep.coded(dx),
        refused,
        aligned(scratch_of_pairs(sweep.call.size)),
    )
    return refused
