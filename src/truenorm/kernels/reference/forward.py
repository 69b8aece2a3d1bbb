"""Forward at each level: blocks of rows, from stored numbers to stored numbers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.backend import NeverRefuses, States
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.ground import DONE, REFUSED, UNDEFINED
from truenorm.kernels.reference import narrow, pairs, single, structure, sweep
from truenorm.kernels.rounding import Tested
from truenorm.kernels.special import clear_not_finite, no_spread
from truenorm.kernels.storage import Stored, as_float32, widen

__all__ = ["NarrowForward", "PairForward", "SingleForward"]

Float64 = NDArray[np.float64]


class NarrowForward(sweep.Sweep):
    """Levels 0 and 1, for types of at most float32."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, sweep.BLOCK)

    def look(self, x: Stored, y: Stored, kept: Float64, states: States) -> bool:
        """Write y, what is kept and what became of each row; return whether some are not done."""
        values = widen(x, self.call.target, self.scratch.like(x, "x"))
        undefined = clear_not_finite(values) | no_spread(values, self.call.eps, self.call.norm)
        tested, found = self._tested(values)
        np.concatenate(found[-kept.shape[1] :], axis=1, out=kept)
        y[...] = tested.values
        kept[undefined] = np.nan
        states[...] = np.where(tested.refused.any(axis=1), REFUSED, DONE)
        states[undefined] = UNDEFINED
        return bool(states.any())

    def look_again(self, x: Stored, _kept: Float64, y: Stored) -> Flags:
        """Take refused y through structure and double-double."""
        call = self.call
        values = widen(x, call.target)
        tested, _ = self._tested(values)
        structure.accept_beta_at_mean(tested, values, call)
        rows = np.flatnonzero(tested.refused.any(axis=1))
        if len(rows):
            _take(tested, rows, pairs.forward(pairs.describe(values[rows], call), call))
        y[...] = tested.values
        return tested.refused

    def _tested(self, x: Float64) -> tuple[Tested, Sequence[Float64]]:
        """Return y, and what is kept of each row."""
        call = self.call
        tested, found = narrow.forward(x, call, self.scratch)
        structure.accept_beta(tested, found.v[:, 0] == 0, call)
        return tested, found


class PairForward(NarrowForward):
    """Levels 0 and 2, where a float64 takes part."""

    def __init__(self, call: Call) -> None:
        sweep.Sweep.__init__(self, call, sweep.PAIR_BLOCK)

    def look_again(self, x: Stored, _kept: Float64, y: Stored) -> Flags:
        """Find out which elements are refused: nothing short of integers knows better."""
        tested, _ = self._tested(widen(x, self.call.target))
        y[...] = tested.values
        return tested.refused

    def saved_statistics(self, x: Stored) -> Float64:
        """Return what is saved of rows, for a backend that does not hold their powers of two."""
        rows = pairs.describe(widen(x, self.call.target), self.call)
        return np.hstack(pairs.kept_of(rows, self.call.norm))

    def _tested(self, x: Float64) -> tuple[Tested, Sequence[Float64]]:
        call = self.call
        rows = pairs.describe(x, call)
        tested = pairs.forward(rows, call)
        structure.accept_beta(tested, rows.constant[:, 0], call)
        if not call.norm.centred and tested.refused.any():
            structure.accept_beta_at_mean(tested, x, call)
        return tested, pairs.kept_of(rows, call.norm)


def _take(tested: Tested, rows: NDArray[np.intp], better: Tested) -> None:
    """Replace what was refused by what the next level says of it."""
    refused = tested.refused[rows]
    values = tested.values[rows]
    values[refused] = better.values[refused]
    tested.values[rows] = values
    tested.refused[rows] = refused & better.refused


class SingleForward(sweep.Sweep, NeverRefuses):
    """Fast mode: float32 where that will do, for types of at most float32."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, sweep.BLOCK)
        self._parameters = single.Parameters.of(call)

    def look(self, x: Stored, y: Stored, kept: Float64, states: States) -> bool:
        """Write y, the mean as a pair and the variance, and which rows have no result."""
        call = self.call
        rows = as_float32(x, call.target)
        found, easy = single.statistics(rows, call, self.scratch)
        kept[...] = found[:, -kept.shape[1] :]
        if self._parameters is None:
            easy[:] = False
        else:
            values = single.normalize(rows, found, self._parameters, call.eps, self.scratch)
            easy &= values.all(axis=1)  # the sign of a zero is for float64 to say
            y[...] = single.rounded(values, call.target)
        difficult = np.flatnonzero(~easy)
        if len(difficult):
            wide = widen(x[difficult], call.target)
            y[difficult], numbers = single.difficult_rows(wide, call)
            kept[difficult] = numbers[:, -kept.shape[1] :]
        states[...] = np.where(np.isnan(kept[:, 0]), UNDEFINED, DONE)
        return bool(states.any())
