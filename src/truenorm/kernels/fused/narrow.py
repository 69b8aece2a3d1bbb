"""Levels 0 and 1, for types of at most float32; what they refuse goes to pairs."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.backend import States
from truenorm.kernels.call import Flags
from truenorm.kernels.fused.compiled.narrow import backward, forward
from truenorm.kernels.fused.compiled.pairs import forward as pair_forward
from truenorm.kernels.fused.first_call.loading import needs_compiling
from truenorm.kernels.fused.pairs import look_again_at_dx
from truenorm.kernels.fused.scratch import aligned, scratch, scratch_of_pairs
from truenorm.kernels.fused.sums.columns import DigitColumns, PairColumns, Sums
from truenorm.kernels.fused.sums.terms import Terms
from truenorm.kernels.fused.sweep import ForwardSweep, Sweep
from truenorm.kernels.ground import COLUMNS
from truenorm.kernels.storage import Stored, widen

__all__ = ["NarrowBackward", "NarrowForward", "kept_anew"]

Float64 = NDArray[np.float64]
Columns = NDArray[np.intp]


class NarrowForward(ForwardSweep):
    """Forward in float64 with the rounding test."""

    def look(self, x: Stored, y: Stored, kept: Float64, states: States) -> bool:
        """Write y, what is kept and what became of each row; return whether some are not done."""
        return self.first_look(forward.forward, x, y, kept, states) > 0

    @cached_property
    def would_compile(self) -> bool:
        """Whether a second look means compiling."""
        none = self.no_rows()
        return needs_compiling(
            lambda: self.look_again(none, np.empty((0, self.call.norm.numbers_kept)), none)
        )

    def look_again(self, x: Stored, kept: Float64, y: Stored) -> Flags:
        """Take refused y through structure and double-double."""
        refused = np.empty(x.shape, np.bool_)
        pair_forward.settle_y(
            self.coded(x),
            kept,
            *self.parameters,
            self.call.eps,
            self.centred,
            self.coded(y),
            refused,
            aligned(scratch_of_pairs(self.call.size)),
        )
        return refused


class NarrowBackward(Sweep):
    """Backward in float64 with the rounding test."""

    def sums(self) -> Sums:
        """Return sums over no rows."""
        return Sums(self.call.size, self.call.target, 0)

    def adopt(self, x: Stored, kept: Float64) -> bool:
        """Find anew what forward keeps; return whether a row does not have the mean it had."""
        return kept_anew(self, x, kept)

    def look(
        self, dy: Stored, x: Stored, kept: Float64, dx: Stored, sums: Sums, states: States
    ) -> bool:
        """Write dx and what became of rows, and add to the sums; return whether some are left."""
        return self.first_look_back(backward.backward, dy, x, kept, dx, sums, states) > 0

    @cached_property
    def would_compile(self) -> bool:
        """Whether a second look means compiling."""
        none = self.no_rows()
        return needs_compiling(lambda: self.look_again(none, none, none))

    def look_again(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Do dx of rows that were refused in double-double, where the first look says so."""
        marks = np.isnan(widen(dx[:, ::COLUMNS], self.call.target))
        refused = np.repeat(marks, COLUMNS, axis=1)[:, : self.call.size]
        return look_again_at_dx(self, dy, x, dx, (self.call.gamma, 0), refused)

    @cached_property
    def lattice(self) -> Terms:
        """How dgamma is summed on the lattice."""
        return Terms(self.call)

    def dgamma_again(self, columns: Columns) -> PairColumns:
        """Return how to know some columns better."""
        return PairColumns(self.call, columns, 0)

    def dbeta_again(self, columns: Columns) -> DigitColumns:
        """Return how to know some columns exactly."""
        return DigitColumns(self.call, columns)


def kept_anew(sweep: Sweep, x: Stored, kept: Float64) -> bool:
    """Find anew what forward keeps; return whether a row does not have the mean it had."""
    return bool(forward.statistics(sweep.coded(x), sweep.centred, kept, scratch()))
