"""What forward keeps for backward, and what backward returns."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.call import Settings

__all__ = ["Gradients", "Saved"]


class Gradients(NamedTuple):
    """The gradients of a loss; None where there was no gamma or beta. RMSNorm has no beta.

    Attributes
    ----------
    dx : ndarray
        Of the shape and type of x.
    dgamma, dbeta : ndarray or None
        Of the shape and type of gamma and beta.
    """

    dx: NDArray[Any]
    dgamma: NDArray[Any] | None
    dbeta: NDArray[Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class Saved:
    """What `truenorm.layer_norm_backward`, or `rms_norm_backward`, needs of the forward pass.

    It owns three numbers a row, of RMSNorm one, and keeps x and gamma alive, without copying them:
    they must not change before backward has run. Backward notices if the mean of a row has moved,
    that of RMSNorm its mean square, no more; in fast mode on a device, nothing.
    """

    x: NDArray[Any]
    gamma: NDArray[Any] | None
    beta_dtype: np.dtype[Any] | None
    axes: tuple[int, ...]
    settings: Settings = field(repr=False)
    kept: NDArray[np.float64] = field(repr=False)

    @property
    def nbytes(self) -> int:
        """The memory that it owns, in bytes."""
        return self.kept.nbytes

    def __repr__(self) -> str:
        """List what it owns and what it keeps alive."""
        alive = [f"x {self.x.shape} {self.x.dtype}, {self.x.nbytes} bytes"]
        if self.gamma is not None:
            alive.append(f"gamma {self.gamma.shape} {self.gamma.dtype}, {self.gamma.nbytes} bytes")
        rows, numbers = self.kept.shape
        return (
            f"<truenorm.Saved: owns {numbers} number{'s'[: numbers != 1]} for each of {rows} "
            f"rows, {self.nbytes} bytes; keeps alive {' and '.join(alive)}>"
        )
