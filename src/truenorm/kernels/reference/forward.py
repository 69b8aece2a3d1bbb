"""Level 0: what is exact by structure: a rounding test refuses every zero and every tie."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.call import Call, Flags
from truenorm.kernels.protocol import NoFallback, RowStatus
from truenorm.kernels.reference import fast, tier1, tier2
from truenorm.kernels.reference.tier1 import row_sums
from truenorm.kernels.rounding import Tested, round_to
from truenorm.kernels.rows import Stored, as_float32, widen
from truenorm.kernels.special import clear_not_finite, no_spread
from truenorm.kernels.tuning import OK, UNDECIDED, UNDEFINED

Float64 = NDArray[np.float64]


def accept_beta(tested: Tested, without_spread: NDArray[np.bool_], call: Call) -> None:
    """In a row where c = 0, and where gamma = 0, y is beta rounded; an exact zero is +0."""
    if not tested.undecided.any():  # what is accepted is right
        return
    rounded = round_to(call.beta + 0.0, call.x_format)
    rows, columns = np.flatnonzero(without_spread), np.flatnonzero(call.gamma == 0)
    tested.values[rows] = rounded
    tested.undecided[rows] = False
    tested.values[:, columns] = rounded[columns]
    tested.undecided[:, columns] = False


def accept_beta_at_mean(tested: Tested, x: Float64, call: Call) -> None:
    """Where a undecided element equals the mean of its row, c = 0 and y is beta rounded."""
    at_mean = exactly_at_mean(x) if call.norm.centred else x == 0
    at_mean &= tested.undecided
    np.copyto(tested.values, round_to(call.beta + 0.0, call.x_format), where=at_mean)
    tested.undecided[at_mean] = False


def accept_zero_dx(tested: Tested, dy: Float64, call: Call) -> None:
    """Where g is the same all along a row, dx is zero (D21): the gradient of y.sum().

    Where rows are not centred, if g is zero.
    """
    gamma = call.gamma
    first = dy[:, 0] * gamma[0]
    rows = np.flatnonzero(first == dy[:, -1] * gamma[-1])
    if not len(rows):
        return
    g = dy[rows] * gamma
    rows = rows[(g == (g[:, :1] if call.norm.centred else 0.0)).all(axis=1)]
    tested.values[rows] = 0
    tested.undecided[rows] = False


def accept_zero_at_zero(tested: Tested, dy: Float64, x: Float64, call: Call) -> None:
    """Where x and g are zero, so is dx of a row that is not centred (D29)."""
    if not call.norm.centred and tested.undecided.any():
        zero = (x == 0) & ((dy == 0) | (call.gamma == 0))
        tested.values[zero] = 0
        tested.undecided[zero] = False


def exactly_at_mean(x: Float64) -> NDArray[np.bool_]:
    """Return which elements are known to equal the mean of their row: D*x = sum(x).

    If all x of a row are multiples of some 2**k, and sum|x| < 2**(k + 53), then every partial sum
    is a float64, so the sum is exact in any order. For x of at most float32, whose sums and
    products with D are exact in float64 where this says so; of float64 rows nothing is known.
    """
    limit = np.frexp(2 * row_sums(np.abs(x)))[1]
    in_units = np.ldexp(x, 53 - limit)
    exact = (np.rint(in_units) == in_units).all(axis=1, keepdims=True)
    exact &= (x.astype(np.float32) == x).all(axis=1, keepdims=True)
    at_mean: NDArray[np.bool_] = x * x.shape[1] == row_sums(x)
    at_mean &= exact
    return at_mean


class NarrowForward(tier1.Sweep):
    """Levels 0 and 1, for types of at most float32."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, tier1.BLOCK)

    def compute(self, x: Stored, y: Stored, saved: Float64, status: RowStatus) -> bool:
        """Write y, what is saved and what became of each row; return whether some are not done."""
        values = widen(x, self.call.x_format, self.scratch.like(x, "x"))
        undefined = clear_not_finite(values) | no_spread(values, self.call.eps, self.call.norm)
        tested, found = self._tested(values)
        np.concatenate(found[-saved.shape[1] :], axis=1, out=saved)
        y[...] = tested.values
        saved[undefined] = np.nan
        status[...] = np.where(tested.undecided.any(axis=1), UNDECIDED, OK)
        status[undefined] = UNDEFINED
        return bool(status.any())

    def recompute(self, x: Stored, _saved: Float64, y: Stored) -> Flags:
        """Take undecided y through structure and double-double."""
        call = self.call
        values = widen(x, call.x_format)
        tested, _ = self._tested(values)
        accept_beta_at_mean(tested, values, call)
        rows = np.flatnonzero(tested.undecided.any(axis=1))
        if len(rows):
            _take(tested, rows, tier2.forward(tier2.describe(values[rows], call), call))
        y[...] = tested.values
        return tested.undecided

    def _tested(self, x: Float64) -> tuple[Tested, Sequence[Float64]]:
        """Return y, and what is saved of each row."""
        call = self.call
        tested, found = tier1.forward(x, call, self.scratch)
        accept_beta(tested, found.v[:, 0] == 0, call)
        return tested, found


class PairForward(NarrowForward):
    """Levels 0 and 2, where a float64 takes part."""

    def __init__(self, call: Call) -> None:
        tier1.Sweep.__init__(self, call, tier1.PAIR_BLOCK)

    def recompute(self, x: Stored, _saved: Float64, y: Stored) -> Flags:
        """Find out which elements are undecided: nothing short of integers knows better."""
        tested, _ = self._tested(widen(x, self.call.x_format))
        y[...] = tested.values
        return tested.undecided

    def saved_statistics(self, x: Stored) -> Float64:
        """Return what is saved of rows, for a backend that does not hold their powers of two."""
        rows = tier2.describe(widen(x, self.call.x_format), self.call)
        return np.hstack(tier2.saved_of(rows, self.call.norm))

    def _tested(self, x: Float64) -> tuple[Tested, Sequence[Float64]]:
        call = self.call
        rows = tier2.describe(x, call)
        tested = tier2.forward(rows, call)
        accept_beta(tested, rows.constant[:, 0], call)
        if not call.norm.centred and tested.undecided.any():
            accept_beta_at_mean(tested, x, call)
        return tested, tier2.saved_of(rows, call.norm)


def _take(tested: Tested, rows: NDArray[np.intp], better: Tested) -> None:
    """Replace what was undecided by what the next level says of it."""
    undecided = tested.undecided[rows]
    values = tested.values[rows]
    values[undecided] = better.values[undecided]
    tested.values[rows] = values
    tested.undecided[rows] = undecided & better.undecided


class SingleForward(tier1.Sweep, NoFallback):
    """Fast mode: float32 where that will do, for types of at most float32."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, tier1.BLOCK)
        self._parameters = fast.Parameters.of(call)

    def compute(self, x: Stored, y: Stored, saved: Float64, status: RowStatus) -> bool:
        """Write y, the mean as a pair and the variance, and which rows have no result."""
        call = self.call
        rows = as_float32(x, call.x_format)
        found, easy = fast.statistics(rows, call, self.scratch)
        saved[...] = found[:, -saved.shape[1] :]
        if self._parameters is None:
            easy[:] = False
        else:
            values = fast.normalize(rows, found, self._parameters, call.eps, self.scratch)
            easy &= values.all(axis=1)  # the sign of a zero is for float64 to say
            y[...] = fast.rounded(values, call.x_format)
        difficult = np.flatnonzero(~easy)
        if len(difficult):
            wide = widen(x[difficult], call.x_format)
            y[difficult], numbers = fast.difficult_rows(wide, call)
            saved[difficult] = numbers[:, -saved.shape[1] :]
        status[...] = np.where(np.isnan(saved[:, 0]), UNDEFINED, OK)
        return bool(status.any())
