"""The forward and backward pass of the reference backend."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import BFLOAT16, FLOAT64
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.fixed_point import FixedPointSum
from truenorm.kernels.protocol import Backward, Forward, NoFallback, RowStatus
from truenorm.kernels.reference import fast, tier1, tier2
from truenorm.kernels.reference.columns import (
    BoundedSum,
    CertifiedSum,
    CompensatedSum,
    FixedPointDgamma,
    PairSum,
    Sums,
    column_terms,
)
from truenorm.kernels.rounding import Tested, round_to
from truenorm.kernels.rows import Stored, as_float32, widen
from truenorm.kernels.special import clear_not_finite, no_spread
from truenorm.kernels.tuning import CHANGED, NOT_FINITE, OK, UNDECIDED, UNDEFINED

Float64 = NDArray[np.float64]
Columns = NDArray[np.intp]

LARGE = 10**6
"""Elements in double-double above which a call is logged."""

logger = logging.getLogger("truenorm")


class ReferenceBackend:
    """NumPy and Python integers: always available, written to be read."""

    name = "reference"

    def forward(self, call: Call) -> Forward:
        """Return the forward pass of a call."""
        _log_large(call)
        if call.arithmetic == "tier1":
            return Tier1Forward(call)
        return Fast32Forward(call) if call.arithmetic == "fast32" else Tier2Forward(call)

    def backward(self, call: Call) -> Backward[Any]:
        """Return the backward pass of a call."""
        _log_large(call)
        if call.arithmetic == "tier1":
            return Tier1Backward(call)
        return Fast32Backward(call) if call.arithmetic == "fast32" else Tier2Backward(call)

    def fixed_point_dgamma(self, call: Call) -> FixedPointDgamma:
        """Return the fixed-point sum of dgamma of a call in tier 1."""
        return FixedPointDgamma(call)


def _log_large(call: Call) -> None:
    """Log why a large call takes long."""
    if call.arithmetic in ("tier2", "fast64") and call.count * call.size > LARGE:
        logger.info(
            "%d float64 elements in double-double with NumPy take a while",
            call.count * call.size,
        )


class Tier1Forward(tier1.Sweep):
    """Forward in correct mode, for types of at most float32."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, tier1.BLOCK)

    def compute(self, x: Stored, y: Stored, saved: Float64, status: RowStatus) -> bool:
        """Compute y, the saved statistics and the row status; return True if one is not OK."""
        values = widen(x, self.call.x_format, self.scratch.like(x, "x"))
        undefined = clear_not_finite(values) | no_spread(values, self.call.eps, self.call.norm)
        tested, statistics = self._tested(values)
        np.concatenate(statistics[-saved.shape[1] :], axis=1, out=saved)
        y[...] = tested.values
        saved[undefined] = np.nan
        status[...] = np.where(tested.undecided.any(axis=1), UNDECIDED, OK)
        status[undefined] = UNDEFINED
        return bool(status.any())

    def recompute(self, x: Stored, _saved: Float64, y: Stored) -> Flags:
        """Recompute undecided rows; return the elements that remain undecided."""
        call = self.call
        values = widen(x, call.x_format)
        tested, _ = self._tested(values)
        tier1.accept_beta_at_mean(tested, values, call)
        rows = np.flatnonzero(tested.undecided.any(axis=1))
        if len(rows):
            better = tier2.forward(tier2.describe(values[rows], call), call)
            undecided = tested.undecided[rows]
            tested.values[rows] = np.where(undecided, better.values, tested.values[rows])
            tested.undecided[rows] = undecided & better.undecided
        y[...] = tested.values
        return tested.undecided

    def _tested(self, x: Float64) -> tuple[Tested, Sequence[Float64]]:
        """Return y, and the statistics of each row."""
        tested, statistics = tier1.forward(x, self.call, self.scratch)
        tier1.accept_beta(tested, statistics.v[:, 0] == 0, self.call)
        return tested, statistics


class Tier2Forward(Tier1Forward):
    """Forward with a float64 array."""

    def __init__(self, call: Call) -> None:
        tier1.Sweep.__init__(self, call, tier1.PAIR_BLOCK)

    def recompute(self, x: Stored, _saved: Float64, y: Stored) -> Flags:
        """Return the elements of undecided rows that are undecided in tier 2."""
        tested, _ = self._tested(widen(x, self.call.x_format))
        y[...] = tested.values
        return tested.undecided

    def saved_statistics(self, x: Stored) -> Float64:
        """Return the saved statistics of rows, with exponents of their own."""
        rows = tier2.describe(widen(x, self.call.x_format), self.call)
        return np.hstack(tier2.saved_of(rows, self.call.norm))

    def _tested(self, x: Float64) -> tuple[Tested, Sequence[Float64]]:
        call = self.call
        rows = tier2.describe(x, call)
        tested = tier2.forward(rows, call)
        tier1.accept_beta(tested, rows.constant[:, 0], call)
        if not call.norm.centred and tested.undecided.any():
            tier1.accept_beta_at_mean(tested, x, call)
        if call.x_format is FLOAT64:
            return tested, tier2.saved_of(rows, call.norm)
        return tested, tier1.statistics(x, call.norm, self.scratch)[0]


class Fast32Forward(tier1.Sweep, NoFallback):
    """Forward in fast mode, for types of at most float32: in float32 where that is enough."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, tier1.BLOCK)
        self._parameters = fast.Parameters.of(call)

    def compute(self, x: Stored, y: Stored, saved: Float64, status: RowStatus) -> bool:
        """Compute y, the saved statistics and the row status; return True if one is not OK."""
        call = self.call
        rows = as_float32(x, call.x_format)
        statistics, easy = fast.statistics(rows, call, self.scratch)
        saved[...] = statistics[:, -saved.shape[1] :]
        if self._parameters is None:
            easy[:] = False
        else:
            values = fast.normalize(rows, statistics, self._parameters, call.eps, self.scratch)
            easy &= values.all(axis=1)  # float64 decides the sign of a zero
            y[...] = fast.rounded(values, call.x_format)
        difficult = np.flatnonzero(~easy)
        if len(difficult):
            wide = widen(x[difficult], call.x_format)
            y[difficult], numbers = fast.difficult_rows(wide, call)
            saved[difficult] = numbers[:, -saved.shape[1] :]
        status[...] = np.where(np.isnan(saved[:, 0]), UNDEFINED, OK)
        return bool(status.any())


class _Backward(tier1.Sweep):
    """Common code of all backward passes."""

    def recompute_saved(self, _x: Stored, _saved: Float64) -> bool:
        """Use the statistics of other backends: the bounds of this one are wider."""
        return False

    def _widened(self, dy: Stored, x: Stored) -> tuple[Float64, Float64]:
        x_format = self.call.x_format
        return (
            widen(dy, x_format, self.scratch.like(dy, "dy")),
            widen(x, x_format, self.scratch.like(x, "x")),
        )


def _complete(status: RowStatus, changed: Flags, saved: Float64, not_finite: Flags) -> bool:
    """Complete the row status; return True if one is not OK."""
    status[changed] = CHANGED
    status[np.isnan(saved[:, 0])] = UNDEFINED
    status[not_finite] = NOT_FINITE
    return bool(status.any())


class _CorrectBackward(_Backward, ABC):
    """Common code of the backward passes of correct mode."""

    @abstractmethod
    def _tested(
        self, dy: Float64, x: Float64, saved: Float64, dgamma: Any
    ) -> tuple[Tested, Flags]:
        """Add to dgamma; return dx and the rows that have changed."""

    def compute(
        self, dy: Stored, x: Stored, saved: Float64, dx: Stored, sums: Sums, status: RowStatus
    ) -> bool:
        """Compute dx and the row status, and add to the sums; return True if one is not OK."""
        dy_values, x_values = self._widened(dy, x)
        changed = clear_not_finite(x_values)
        not_finite = clear_not_finite(dy_values)
        tested, moved = self._tested(dy_values, x_values, saved, sums.dgamma_sum)
        dx[...] = tested.values
        if self.call.beta.float_format is not None:
            sums.dbeta_sum.add(dy_values)
        status[...] = np.where(tested.undecided.any(axis=1), UNDECIDED, OK)
        return _complete(status, changed | moved, saved, not_finite)

    def recompute(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Recompute undecided rows; return the elements that remain undecided."""
        call = self.call
        x_values, dy_values = widen(x, call.x_format), widen(dy, call.x_format)
        tested = tier2.backward(tier2.describe(x_values, call), dy_values, call)
        tier1.accept_zero_at_zero(tested, dy_values, x_values, call)
        dx[...] = tested.values
        return tested.undecided

    def exact_dbeta(self, columns: Columns) -> "ExactColumns":
        """Return an exact sum of some columns."""
        return ExactColumns(self.call, columns)

    def _dbeta(self) -> CertifiedSum:
        return CertifiedSum(self.call.size, self.call.x_format)


class Tier1Backward(_CorrectBackward):
    """Backward in correct mode, for types of at most float32."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, tier1.BLOCK)

    def sums(self) -> Sums:
        """Return zeroed accumulators."""
        return Sums(BoundedSum(self.call.size), self._dbeta())

    def _tested(
        self, dy: Float64, x: Float64, saved: Float64, dgamma: BoundedSum
    ) -> tuple[Tested, Flags]:
        statistics = tier1.Statistics.of_saved(saved)
        gradient = tier1.backward(dy, x, statistics, self.call, self.scratch)
        tier1.accept_zero_dx(gradient.dx, dy, self.call)
        dgamma.add(gradient.dgamma)
        return gradient.dx, ~(gradient.drift[:, 0] <= 1)

    def tier2_dgamma(self, columns: Columns) -> "PairColumns":
        """Return a tier-2 sum of some columns."""
        return PairColumns(self.call, columns)


class Tier2Backward(_CorrectBackward):
    """Backward with a float64 array."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, tier1.PAIR_BLOCK)

    def sums(self) -> Sums:
        """Return zeroed accumulators."""
        return Sums(PairSum(self.call.size), self._dbeta())

    def recompute_saved(self, x: Stored, saved: Float64) -> bool:
        """Replace the statistics of fast mode, which have an error of some u."""
        if self.call.arithmetic != "fast64":
            return False
        rows = np.flatnonzero(saved[:, -1] >= 0)
        if not len(rows):
            return False
        near, rest, v = tier1.Statistics.of_saved(saved[rows])
        values = widen(x[rows], self.call.x_format)
        changed = clear_not_finite(values).any()
        described = tier2.describe(values, self.call)
        high, low = tier2.scaled(described.mean, described.mean_exponent)
        allowed = 2.0**-46 * np.sqrt(v) + 2.0**-90 * np.abs(near)
        saved[rows] = np.hstack(tier2.saved_of(described, self.call.norm))
        if not self.call.norm.centred:
            near, high, allowed = np.sqrt(v), -saved[rows], 2.0**-46 * np.sqrt(v) + 1e-323
        changed |= not (np.abs((high - near) + (low - rest)) <= allowed).all()
        return bool(changed)

    def _tested(
        self, dy: Float64, x: Float64, saved: Float64, dgamma: PairSum
    ) -> tuple[Tested, Flags]:
        call = self.call
        rows = tier2.describe(x, call)
        if call.gamma.float_format is not None:
            dgamma.add(column_terms(rows, dy, np.arange(call.size)))
        tested = tier2.backward(rows, dy, call)
        tier1.accept_zero_at_zero(tested, dy, x, call)
        if call.x_format is FLOAT64:
            return tested, tier2.have_moved(rows, saved, call.norm)
        now, _ = tier1.statistics(x, call.norm, self.scratch)
        return tested, tier1.have_moved(now, tier1.Statistics.of_saved(saved), call.norm)

    def tier2_dgamma(self, _columns: Columns) -> None:
        """Return None: the first sums are those of tier 2."""

    def tier2_columns(self, columns: Columns) -> "PairColumns":
        """Return a tier-2 sum of some columns, for a backend whose sums have no exponents."""
        return PairColumns(self.call, columns)


class Fast32Backward(_Backward, NoFallback):
    """Backward in fast mode, for types of at most float32: in float64, without a rounding test."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, tier1.BLOCK)

    def sums(self) -> Sums:
        """Return zeroed accumulators."""
        return Sums(CompensatedSum(self.call.size), CompensatedSum(self.call.size))

    def compute(
        self, dy: Stored, x: Stored, saved: Float64, dx: Stored, sums: Sums, status: RowStatus
    ) -> bool:
        """Compute dx and the row status, and add to the sums; return True if one is not OK."""
        call = self.call
        dy_values, x_values = self._widened(dy, x)
        not_finite = np.zeros(len(x), bool)
        dy_sum = fast.block_sum(dy_values)
        if not np.isfinite(dy_sum).all():
            not_finite = clear_not_finite(dy_values)
            dy_sum = fast.block_sum(dy_values)
        gradient = fast.gradient(dy_values, x_values, saved, call, self.scratch)
        if call.x_format is BFLOAT16:
            dx[...] = round_to(gradient.dx * gradient.r, call.x_format)
        else:
            np.multiply(gradient.dx, gradient.r, out=dx, casting="same_kind")
        sums.dgamma_sum.add(gradient.dgamma)
        sums.dbeta_sum.add(dy_sum)
        status[...] = OK
        return _complete(status, gradient.moved, saved, not_finite)


class PairColumns(tier1.Sweep):
    """Some columns of dgamma in double-double."""

    def __init__(self, call: Call, columns: Columns) -> None:
        super().__init__(call, tier1.PAIR_BLOCK)
        self._columns = columns

    def sums(self) -> PairSum:
        """Return zeroed accumulators."""
        return PairSum(len(self._columns))

    def add(self, dy: Stored, x: Stored, sums: PairSum) -> None:
        """Add a block of rows."""
        rows = tier2.describe(widen(x, self.call.x_format), self.call)
        sums.add(column_terms(rows, widen(dy, self.call.x_format), self._columns))


class ExactColumns(tier1.Sweep):
    """Some columns of dbeta in fixed point."""

    def __init__(self, call: Call, columns: Columns) -> None:
        super().__init__(call, tier1.BLOCK)
        self._columns = columns

    def sums(self) -> FixedPointSum:
        """Return zeroed accumulators."""
        return FixedPointSum(len(self._columns))

    def add(self, dy: Stored, _x: Stored, sums: FixedPointSum) -> None:
        """Add a block of rows."""
        sums.add(widen(dy[:, self._columns], self.call.x_format))
