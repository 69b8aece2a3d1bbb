"""Interface between the driver and a backend: functions that compute blocks of rows.

All arrays have two axes, are C-contiguous and in native byte order.
"""

from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.fixed_point import FixedPoint, FixedPointSum
from truenorm.kernels.rounding import Tested
from truenorm.kernels.rows import Range, Stored

Float64 = NDArray[np.float64]
RowStatus = NDArray[np.uint8]
"""Status of each row: see `kernels.tuning`."""


class Mergeable(Protocol):
    """Sums over some rows."""

    def merge(self, other: Any, /) -> None:
        """Add the sums of the same kind over other rows. `other` is not valid afterwards."""


class ColumnSums(Mergeable, Protocol):
    """Sums of some columns over rows, not rounded yet."""

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums, and report which columns are undecided."""


class RowSums(Mergeable, Protocol):
    """The accumulators of dgamma and dbeta in a backward pass."""

    def dgamma(self, target: FloatFormat) -> Tested:
        """Round the sum of dy*xhat."""

    def dbeta(self, target: FloatFormat) -> Tested:
        """Round the sum of dy."""

    def fixed_point_dbeta(self) -> FixedPointSum | None:
        """Return the sum of dy, or None if it is not exact. Correct mode only."""


class FixedPointTotal(Mergeable, Protocol):
    """Sum of the fixed-point terms of dgamma over some rows."""

    def number(self) -> FixedPoint:
        """Return it in canonical form. The last column is the sum of all units."""


Columns = TypeVar("Columns", bound=ColumnSums)
Sums = TypeVar("Sums", bound=RowSums)
Total = TypeVar("Total", bound=FixedPointTotal)


class Sweep(Protocol):
    """One pass over all rows."""

    threads: int
    parts: list[Range]
    """Parts of the rows that may run concurrently. Each has accumulators of its own."""
    rows_at_once: int
    """Rows of a block, which is the unit of work of the methods below."""


class Forward(Sweep, Protocol):
    """Forward pass of a call."""

    def compute(self, x: Stored, y: Stored, saved: Float64, status: RowStatus) -> bool:
        """Compute y, the saved statistics and the row status; return True if one is not OK."""

    def recompute(self, x: Stored, saved: Float64, y: Stored) -> Flags:
        """Recompute undecided rows by tier 2; return the elements that remain undecided."""


class ColumnSweep(Sweep, Protocol[Columns]):
    """A further sweep, for the sums of undecided columns."""

    def sums(self) -> Columns:
        """Return zeroed accumulators."""

    def add(self, dy: Stored, x: Stored, sums: Columns) -> None:
        """Add a block of rows. dy is finite in the columns of the sweep."""


class Backward(Sweep, Protocol[Sums]):
    """Backward pass of a call."""

    def sums(self) -> Sums:
        """Return zeroed accumulators."""

    def recompute_saved(self, x: Stored, saved: Float64) -> bool:
        """Replace the statistics saved by another backend; return True if a row mean changed."""

    def compute(
        self,
        dy: Stored,
        x: Stored,
        saved: Float64,
        dx: Stored,
        sums: Sums,
        status: RowStatus,
    ) -> bool:
        """Compute dx and the row status, and add to the sums; return True if one is not OK.

        A row whose dy is not finite adds nothing to the sums.
        """

    def recompute(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Recompute undecided rows by tier 2; return the elements that remain undecided."""

    def tier2_dgamma(self, columns: NDArray[np.intp]) -> ColumnSweep[Any] | None:
        """Return a tier-2 sum of some columns, or None if that would decide no more."""

    def exact_dbeta(self, columns: NDArray[np.intp]) -> ColumnSweep[Any]:
        """Return an exact sum of some columns."""


class NoFallback:
    """Mixin of fast mode, which has no rounding test: no row or column is undecided."""

    def recompute(self, *_: Any) -> Any:
        """Raise: there is nothing to recompute."""
        raise NotImplementedError

    tier2_dgamma = exact_dbeta = recompute


class FixedPointDgamma(Protocol[Total]):
    """The fixed-point sum of dgamma in tier 1, for partial gradients."""

    def sums(self) -> Total:
        """Return zeroed accumulators."""

    def add(self, dy: Stored, x: Stored, status: RowStatus | None, sums: Total) -> None:
        """Add the rows of a block that are OK or UNDECIDED; None means all of them."""


class ColumnGradients(NamedTuple):
    """dgamma and dbeta as float64, rounded to the formats of gamma and beta."""

    dgamma: Float64 | None
    dbeta: Float64 | None


class Backend(Protocol):
    """The forward and backward pass of every call.

    Called under ``np.errstate(all="ignore")``: infinities and NaN are valid results.
    """

    name: str

    def forward(self, call: Call) -> Forward:
        """Return the forward pass of a call."""

    def backward(self, call: Call) -> Backward[Any]:
        """Return the backward pass of a call."""

    def fixed_point_dgamma(self, call: Call) -> FixedPointDgamma[Any]:
        """Return the fixed-point sum of dgamma of a call in tier 1."""
