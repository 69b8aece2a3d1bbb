"""What every backend offers: forward and backward over rows."""

from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.operation import RowOperation
from truenorm.kernels.rows import Rows

__all__ = ["Backend", "ColumnGradients", "Parameter", "Rounding", "Settings"]

Rounding = Literal["correct", "fast"]


class Parameter(NamedTuple):
    """gamma or beta: its values widened to float64, and its own type; None if not given."""

    values: NDArray[np.float64]
    target: FloatFormat | None


class Settings(NamedTuple):
    """What a call asks for, beside its arrays."""

    operation: RowOperation
    eps: float
    rounding: Rounding
    backend: str
    """Who did forward: what is kept may mean something else to another backend."""

    threads: int | None = None
    """The most threads to use; None leaves it to the backend."""


class ColumnGradients(NamedTuple):
    """Gradients of gamma and beta, rounded to their types but held as float64."""

    dgamma: NDArray[np.float64] | None
    dbeta: NDArray[np.float64] | None


class Backend(Protocol):
    """Computes rows. Whatever it keeps for backward is one array with a row for each row.

    Who calls it has switched off NumPy's warnings: infinities and NaN are results like others.
    """

    name: str

    def forward(
        self, settings: Settings, x: Rows, gamma: Parameter, beta: Parameter, y: Rows
    ) -> NDArray[np.float64]:
        """Write y, and return what backward needs."""

    def backward(
        self,
        settings: Settings,
        dy: Rows,
        x: Rows,
        kept: NDArray[np.float64],
        gamma: Parameter,
        beta: Parameter,
        dx: Rows,
    ) -> ColumnGradients:
        """Write dx, and return the gradients of the parameters."""
