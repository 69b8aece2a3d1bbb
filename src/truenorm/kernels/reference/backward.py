"""Backward at each level: blocks of rows, from stored numbers to stored numbers."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import BFLOAT16
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.fixed_point import FixedPointSum
from truenorm.kernels.protocol import NoFallback, RowStatus
from truenorm.kernels.reference import fast, forward, tier1, tier2
from truenorm.kernels.reference.columns import (
    BoundedSum,
    CertifiedSum,
    CompensatedSum,
    PairSum,
    Sums,
    column_terms,
)
from truenorm.kernels.rounding import Tested, round_to
from truenorm.kernels.rows import Stored, widen
from truenorm.kernels.special import clear_not_finite
from truenorm.kernels.tuning import CHANGED, NOT_FINITE, OK, UNDECIDED, UNDEFINED

__all__ = ["NarrowBackward", "PairBackward", "SingleBackward"]

Float64 = NDArray[np.float64]
Columns = NDArray[np.intp]
Dgamma = TypeVar("Dgamma", BoundedSum, PairSum)


class _Backward(tier1.Sweep):
    """What all levels do alike."""

    def recompute_saved(self, _x: Stored, _saved: Float64) -> bool:
        """Take what other backends keep as it is: the bounds of this one are wider."""
        return False

    def _widened(self, dy: Stored, x: Stored) -> tuple[Float64, Float64]:
        target = self.call.x_format
        slopes = widen(dy, target, self.scratch.like(dy, "dy"))
        return slopes, widen(x, target, self.scratch.like(x, "x"))


def _tell(status: RowStatus, changed: Flags, saved: Float64, not_finite: Flags) -> bool:
    """Complete what became of each row; return whether some are left."""
    status[changed] = CHANGED
    status[np.isnan(saved[:, 0])] = UNDEFINED
    status[not_finite] = NOT_FINITE
    return bool(status.any())


class _CorrectBackward(_Backward, ABC, Generic[Dgamma]):
    """What both levels of correct mode do alike."""

    @abstractmethod
    def sums(self) -> Sums[Dgamma, CertifiedSum]:
        """Return sums over no rows."""

    @abstractmethod
    def _tested(
        self, dy: Float64, x: Float64, saved: Float64, dgamma: Dgamma
    ) -> tuple[Tested, Flags]:
        """Return dx and which rows have changed, and add to dgamma."""

    def compute(
        self,
        dy: Stored,
        x: Stored,
        saved: Float64,
        dx: Stored,
        sums: Sums[Dgamma, CertifiedSum],
        status: RowStatus,
    ) -> bool:
        """Write dx and what became of rows, and add to the sums; return whether some are left."""
        slopes, values = self._widened(dy, x)
        changed = clear_not_finite(values)
        not_finite = clear_not_finite(slopes)
        tested, moved = self._tested(slopes, values, saved, sums.dgamma)
        dx[...] = tested.values
        if self.call.beta_format is not None:
            sums.dbeta.add(slopes)
        status[...] = np.where(tested.undecided.any(axis=1), UNDECIDED, OK)
        return _tell(status, changed | moved, saved, not_finite)

    def recompute(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Do dx of rows that were undecided in double-double."""
        call = self.call
        values, slopes = widen(x, call.x_format), widen(dy, call.x_format)
        tested = tier2.backward(tier2.describe(values, call), slopes, call)
        forward.accept_zero_at_zero(tested, slopes, values, call)
        dx[...] = tested.values
        return tested.undecided

    def exact_dbeta(self, columns: Columns) -> "ExactColumns":
        """Return how to know some columns exactly."""
        return ExactColumns(self.call, columns)

    def _dbeta(self) -> CertifiedSum:
        return CertifiedSum(self.call.size, self.call.x_format)


class NarrowBackward(_CorrectBackward[BoundedSum]):
    """Levels 0 and 1, for types of at most float32."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, tier1.BLOCK)

    def sums(self) -> Sums[BoundedSum, CertifiedSum]:
        """Return sums over no rows."""
        return Sums(BoundedSum(self.call.size), self._dbeta())

    def _tested(
        self, dy: Float64, x: Float64, saved: Float64, dgamma: BoundedSum
    ) -> tuple[Tested, Flags]:
        call = self.call
        found = tier1.Statistics.of_saved(saved)
        gradient = tier1.backward(dy, x, found, call, self.scratch)
        forward.accept_zero_dx(gradient.dx, dy, call)
        dgamma.add(gradient.dgamma)
        return gradient.dx, ~(gradient.drift[:, 0] <= 1)

    def tier2_dgamma(self, columns: Columns) -> "PairColumns":
        """Return how to know some columns better."""
        return PairColumns(self.call, columns)


class PairBackward(_CorrectBackward[PairSum]):
    """Levels 0 and 2, where a float64 takes part."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, tier1.PAIR_BLOCK)

    def sums(self) -> Sums[PairSum, CertifiedSum]:
        """Return sums over no rows."""
        return Sums(PairSum(self.call.size), self._dbeta())

    def recompute_saved(self, x: Stored, saved: Float64) -> bool:
        """Put what pairs keep in the place of what fast mode does, which is good to some u."""
        if self.call.arithmetic != "fast64":
            return False
        rows = np.flatnonzero(saved[:, -1] >= 0)
        near, rest, v = tier1.Statistics.of_saved(saved[rows])
        if not len(rows):
            return False
        values = widen(x[rows], self.call.x_format)
        changed = clear_not_finite(values).any()
        found = tier2.describe(values, self.call)
        high, low = tier2.scaled(found.mean, found.mean_exponent)
        allowed = 2.0**-46 * np.sqrt(v) + 2.0**-90 * np.abs(near)
        saved[rows] = np.hstack(tier2.saved_of(found, self.call.norm))
        if not self.call.norm.centred:
            near, high, allowed = np.sqrt(v), -saved[rows], 2.0**-46 * np.sqrt(v) + 1e-323
        changed |= not (np.abs((high - near) + (low - rest)) <= allowed).all()
        return bool(changed)

    def _tested(
        self, dy: Float64, x: Float64, saved: Float64, dgamma: PairSum
    ) -> tuple[Tested, Flags]:
        call = self.call
        rows = tier2.describe(x, call)
        if call.gamma_format is not None:
            dgamma.add(column_terms(rows, dy, np.arange(call.size)))
        tested = tier2.backward(rows, dy, call)
        forward.accept_zero_at_zero(tested, dy, x, call)
        return tested, tier2.have_moved(rows, saved, call.norm)

    def tier2_dgamma(self, _columns: Columns) -> None:
        """Return nothing: only integers know better."""

    def tier2_columns(self, columns: Columns) -> "PairColumns":
        """Return a sum of some columns, for a backend that holds them without powers of two."""
        return PairColumns(self.call, columns)


class PairColumns(tier1.Sweep):
    """Some columns of dgamma in double-double."""

    def __init__(self, call: Call, columns: Columns) -> None:
        super().__init__(call, tier1.PAIR_BLOCK)
        self.columns = columns

    def sums(self) -> PairSum:
        """Return sums over no rows."""
        return PairSum(len(self.columns))

    def add(self, dy: Stored, x: Stored, sums: PairSum) -> None:
        """Add a block of rows."""
        rows = tier2.describe(widen(x, self.call.x_format), self.call)
        sums.add(column_terms(rows, widen(dy, self.call.x_format), self.columns))


class ExactColumns(tier1.Sweep):
    """Some columns of dbeta in integers."""

    def __init__(self, call: Call, columns: Columns) -> None:
        super().__init__(call, tier1.BLOCK)
        self.columns = columns

    def sums(self) -> FixedPointSum:
        """Return sums over no rows."""
        return FixedPointSum(len(self.columns))

    def add(self, dy: Stored, _x: Stored, sums: FixedPointSum) -> None:
        """Add a block of rows."""
        sums.add(widen(dy[:, self.columns], self.call.x_format))


class SingleBackward(_Backward, NoFallback):
    """Fast mode, for types of at most float32: in float64, without a rounding test."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, tier1.BLOCK)

    def sums(self) -> Sums[CompensatedSum, CompensatedSum]:
        """Return sums over no rows."""
        return Sums(CompensatedSum(self.call.size), CompensatedSum(self.call.size))

    def compute(
        self,
        dy: Stored,
        x: Stored,
        saved: Float64,
        dx: Stored,
        sums: Sums[CompensatedSum, CompensatedSum],
        status: RowStatus,
    ) -> bool:
        """Write dx and what became of rows, and add to the sums; return whether some are left."""
        call = self.call
        slopes, values = self._widened(dy, x)
        not_finite = np.zeros(len(x), bool)
        slopes_sum = fast.block_sum(slopes)
        if not np.isfinite(slopes_sum).all():
            not_finite = clear_not_finite(slopes)
            slopes_sum = fast.block_sum(slopes)
        found = fast.gradient(slopes, values, saved, call, self.scratch)
        if call.x_format is BFLOAT16:
            dx[...] = round_to(found.dx * found.r, call.x_format)
        else:
            np.multiply(found.dx, found.r, out=dx, casting="same_kind")
        sums.dgamma.add(found.dgamma)
        sums.dbeta.add(slopes_sum)
        status[...] = OK
        return _tell(status, found.moved, saved, not_finite)
