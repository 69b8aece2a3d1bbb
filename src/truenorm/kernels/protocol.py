"""What a backend is to the driver: a few functions that compute blocks of rows."""

from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.fixed_point import FixedPointDgamma, FixedPointSum
from truenorm.kernels.rounding import Tested
from truenorm.kernels.rows import Range, Stored

Float64 = NDArray[np.float64]
RowStatus = NDArray[np.uint8]
"""What became of each row: see `kernels.tuning`."""


class Mergeable(Protocol):
    """Sums over some rows."""

    def merge(self, other: Any, /) -> None:
        """Add the sums of the same kind over other rows, which are used up."""


class ColumnSums(Mergeable, Protocol):
    """A sum over rows for each of some columns, not rounded yet."""

    def rounded(self, target: FloatFormat) -> Tested:
        """Round them; those that are undecided are not known well enough."""


class ExactSums(ColumnSums, Protocol):
    """Sums that may be known without any error."""

    def as_fixed_point(self) -> FixedPointSum | None:
        """Return them, or None if some are not exact."""


class RowSums(Mergeable, Protocol):
    """Both sums over rows that grow while backward sweeps."""

    @property
    def dgamma(self) -> ColumnSums:
        """Of dy*xhat."""

    @property
    def dbeta(self) -> ColumnSums:
        """Of dy; in correct mode, `ExactSums`."""


Columns = TypeVar("Columns", bound=ColumnSums)
Sums = TypeVar("Sums", bound=RowSums)


class Sweep(Protocol):
    """How a backend goes over all rows."""

    threads: int
    parts: list[Range]
    """Rows that may be done at the same time as others; each has sums of its own."""
    rows_at_once: int
    """Of a part: a block, which is what one call of a function below works on."""


class Forward(Sweep, Protocol):
    """Forward at a level. Arrays have two axes, are C-contiguous and of native numbers."""

    def compute(self, x: Stored, y: Stored, saved: Float64, status: RowStatus) -> bool:
        """Write y, what is saved and what became of each row; return whether some are not done."""

    def recompute(self, x: Stored, saved: Float64, y: Stored) -> Flags:
        """Write y of rows that were undecided; return which elements are undecided once more."""


class ColumnSweep(Sweep, Protocol[Columns]):
    """A second sweep for sums over rows that the first did not know well enough."""

    columns: NDArray[np.intp]
    """The first of those that were asked for, as many as are done in one sweep."""

    def sums(self) -> Columns:
        """Return sums over no rows."""

    def add(self, dy: Stored, x: Stored, sums: Columns) -> None:
        """Add a block of rows; what of dy is not finite belongs to no column that is asked for."""


class Backward(Sweep, Protocol[Sums]):
    """Backward at a level."""

    def sums(self) -> Sums:
        """Return sums over no rows."""

    def recompute_saved(self, x: Stored, saved: Float64) -> bool:
        """Put what this backend would have saved in the place of what another one did.

        Returns whether x has changed since.
        """

    def compute(
        self,
        dy: Stored,
        x: Stored,
        saved: Float64,
        dx: Stored,
        sums: Sums,
        status: RowStatus,
    ) -> bool:
        """Write dx and what became of each row, and add to the sums; return whether some are left.

        A row whose dy is not finite is left out.
        """

    def recompute(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Write dx of rows that were undecided; return which elements are undecided once more."""

    def tier2_dgamma(self, columns: NDArray[np.intp]) -> ColumnSweep[Any] | None:
        """Return how to know some columns better, short of integers."""

    def exact_dbeta(self, columns: NDArray[np.intp]) -> ColumnSweep[Any] | None:
        """Return how to know some columns exactly."""


class NoFallback:
    """For fast mode: it has no rounding test, and so nothing is looked at again."""

    def recompute(self, *_: Any) -> Any:
        """Is not called, since no row is undecided."""
        raise NotImplementedError

    tier2_dgamma = exact_dbeta = recompute


class ColumnGradients(NamedTuple):
    """Gradients of gamma and beta, rounded to their types but held as float64."""

    dgamma: Float64 | None
    dbeta: Float64 | None


class Core(Protocol):
    """Whole calls on ordinary float32 arrays: the functions of `kernels/native/module.c`.

    They return False, or None, for arrays that are not ordinary and for results that need the
    driver. Then nothing that was written is valid.
    """

    def forward(
        self,
        x: Any,
        gamma: Any,
        beta: Any,
        y: Any,
        saved: Float64,
        eps: float,
        mode: int,
        threads: int,
        /,
    ) -> bool:
        """Compute y and the saved statistics."""

    def backward(
        self,
        dy: Any,
        x: Any,
        gamma: Any,
        saved: Float64,
        dx: Any,
        dgamma: Any,
        dbeta: Any,
        eps: float,
        mode: int,
        threads: int,
        /,
    ) -> bool:
        """Compute dx, dgamma and dbeta."""

    def backward_partial(
        self,
        dy: Any,
        x: Any,
        gamma: Any,
        saved: Float64,
        dx: Any,
        has_dbeta: bool,
        eps: float,
        mode: int,
        threads: int,
        /,
    ) -> tuple[tuple[int, bytearray], tuple[int, bytearray]] | None:
        """Compute dx, and dgamma and dbeta as first places and digits; None for the driver."""


class Backend(Protocol):
    """Offers forward and backward at every level.

    Called under ``np.errstate(all="ignore")``: infinities and NaN are valid results.
    """

    name: str

    @property
    def core(self) -> Core | None:
        """Compiled functions for whole calls on float32 arrays, if there are such."""

    def forward(self, call: Call) -> Forward:
        """Return the forward pass of a call."""

    def backward(self, call: Call) -> Backward[Any]:
        """Return the backward pass of a call."""

    def fixed_point_dgamma(self, call: Call) -> FixedPointDgamma[Any]:
        """Return how dgamma of a call at level 1 is summed on the lattice."""
