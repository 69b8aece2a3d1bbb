"""What a backend is to the driver: a few functions that compute blocks of rows."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.norm import Norm
from truenorm.kernels.rounding import Tested
from truenorm.kernels.rows import Rows, Source
from truenorm.kernels.storage import Stored

__all__ = [
    "Backend",
    "Backward",
    "Call",
    "ColumnGradients",
    "ColumnSums",
    "ColumnSweep",
    "Flags",
    "Forward",
    "Level",
    "Mergeable",
    "NeverRefuses",
    "Parameter",
    "Range",
    "Rounding",
    "RowSums",
    "Settings",
    "States",
    "finite_part",
]

Float64 = NDArray[np.float64]
Flags = NDArray[np.bool_]
States = NDArray[np.uint8]
"""What became of each row: see `kernels.ground`."""
Range = tuple[int, int]
"""Rows from one to before another."""

Rounding = Literal["correct", "fast"]
Level = Literal["narrow", "pairs", "single"]
"""In what a call is computed: float64 with a rounding test, pairs of them where a float64 takes
part, or, in fast mode, float32."""


class Parameter(NamedTuple):
    """gamma or beta: its values widened to float64, and its own type; None if not given."""

    values: Float64
    target: FloatFormat | None


class Settings(NamedTuple):
    """What a call asks for, beside its arrays."""

    norm: Norm
    eps: float
    rounding: Rounding
    backend: str
    """Who did forward: what is kept may mean something else to another backend."""

    threads: int | None = None
    """The most threads to use; None leaves it to the backend."""


@dataclass(frozen=True)
class Call:
    """What a backend is told of a call: everything but its rows."""

    norm: Norm
    eps: float
    level: Level
    count: int
    size: int
    target: FloatFormat
    """The type of x, and so of y, dy and dx."""
    gamma: Float64
    beta: Float64
    """Their finite parts: what is not finite is zero here, and the driver's to deal with."""
    special: Flags
    """Columns in which the driver writes y."""
    of_gamma: FloatFormat | None
    of_beta: FloatFormat | None
    """Their types, and so those of their gradients; None if there is none to have."""
    threads: int | None

    @classmethod
    def of(
        cls, settings: Settings, x: Rows, gamma: Parameter, beta: Parameter, special: Flags
    ) -> "Call":
        """Describe a call."""
        return cls(
            norm=settings.norm,
            eps=settings.eps,
            level=_level(settings.rounding, x.target, gamma.target, beta.target),
            count=x.count,
            size=x.size,
            target=x.target,
            gamma=finite_part(gamma.values),
            beta=finite_part(beta.values),
            special=special,
            of_gamma=gamma.target,
            of_beta=beta.target,
            threads=settings.threads,
        )


def finite_part(values: Float64) -> Float64:
    """Return the values with zero in place of what is not finite."""
    return np.where(np.isfinite(values), values, 0.0)


def _level(rounding: Rounding, *types: FloatFormat | None) -> Level:
    """Return the level that does a call with such types: float64 data needs pairs."""
    if FLOAT64 in types:
        return "pairs"
    return "single" if rounding == "fast" else "narrow"


class Mergeable(Protocol):
    """Sums over some rows."""

    def merge(self, other: Any, /) -> None:
        """Add the sums of the same kind over other rows, which are used up."""


class ColumnSums(Mergeable, Protocol):
    """A sum over rows for each of some columns, not rounded yet."""

    def rounded(self, target: FloatFormat) -> Tested:
        """Round them; those that are refused are not known well enough."""


class RowSums(Mergeable, Protocol):
    """Both sums over rows that grow while backward sweeps."""

    @property
    def dgamma(self) -> ColumnSums:
        """Of dy*xhat."""

    @property
    def dbeta(self) -> ColumnSums:
        """Of dy."""


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

    def look(self, x: Stored, y: Stored, kept: Float64, states: States) -> bool:
        """Write y, what is kept and what became of each row; return whether some are not done."""

    def look_again(self, x: Stored, kept: Float64, y: Stored) -> Flags:
        """Write y of rows that were refused; return which elements are refused once more."""


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

    def adopt(self, x: Stored, kept: Float64) -> bool:
        """Put what this backend would have kept in the place of what another one did.

        Returns whether x has changed since.
        """

    def look(
        self,
        dy: Stored,
        x: Stored,
        kept: Float64,
        dx: Stored,
        sums: Sums,
        states: States,
    ) -> bool:
        """Write dx and what became of each row, and add to the sums; return whether some are left.

        A row whose dy is not finite is left out.
        """

    def look_again(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Write dx of rows that were refused; return which elements are refused once more."""

    def dgamma_again(self, columns: NDArray[np.intp]) -> ColumnSweep[Any] | None:
        """Return how to know some columns better, short of integers."""

    def dbeta_again(self, columns: NDArray[np.intp]) -> ColumnSweep[Any] | None:
        """Return how to know some columns exactly."""


class NeverRefuses:
    """For fast mode: it has no rounding test, and so nothing is looked at again."""

    def look_again(self, *_: Any) -> Any:
        """Is not called, since no row is refused."""
        raise NotImplementedError

    dgamma_again = dbeta_again = look_again


class ColumnGradients(NamedTuple):
    """Gradients of gamma and beta, rounded to their types but held as float64."""

    dgamma: Float64 | None
    dbeta: Float64 | None


class Backend(Protocol):
    """Offers forward and backward at every level.

    Who calls it has switched off NumPy's warnings: infinities and NaN are results like others.
    """

    name: str

    def forward(self, call: Call) -> Forward:
        """Return forward for a call."""

    def backward(self, call: Call, dy: Source) -> Backward[Any]:
        """Return backward for a call; the sums may need to know all dy from the start."""
