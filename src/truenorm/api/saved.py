"""What forward keeps for backward, and what backward returns."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.call import Norm, Settings


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
    settings: Settings
    statistics: NDArray[np.float64]

    def __init__(
        self,
        x: NDArray[Any],
        gamma: NDArray[Any] | None,
        beta_dtype: np.dtype[Any] | None,
        axes: tuple[int, ...],
        settings: Settings,
        statistics: NDArray[np.float64],
    ) -> None:
        # At once: a frozen dataclass sets its fields one by one, a sixth of a small call.
        fields = {
            "x": x,
            "gamma": gamma,
            "beta_dtype": beta_dtype,
            "axes": axes,
            "settings": settings,
            "statistics": statistics,
        }
        object.__setattr__(self, "__dict__", fields)

    def __setattr__(self, name: str, _value: object) -> None:
        """Refuse: it describes a call that is over."""
        raise AttributeError(f"{name} cannot be set: Saved is read-only")

    @property
    def nbytes(self) -> int:
        """The memory that it owns, in bytes."""
        return self.statistics.nbytes

    def __repr__(self) -> str:
        """List what it owns and what it keeps alive."""
        alive = [f"x {self.x.shape} {self.x.dtype}, {self.x.nbytes} bytes"]
        if self.gamma is not None:
            alive.append(f"gamma {self.gamma.shape} {self.gamma.dtype}, {self.gamma.nbytes} bytes")
        rows, numbers = self.statistics.shape
        return (
            f"<truenorm.Saved: owns {numbers} number{'s'[: numbers != 1]} for each of {rows} "
            f"rows, {self.nbytes} bytes; keeps alive {' and '.join(alive)}>"
        )


def check_saved(norm: Norm, saved: Any, suffix: str) -> None:
    """Raise unless a forward pass of this norm saved it; the suffix is of what was called."""
    if not isinstance(saved, Saved):
        raise TypeError(
            f"saved is a {type(saved).__name__}: pass what {norm.name}_forward returned beside y"
        )
    made_by = saved.settings.norm
    if made_by != norm:
        raise ValueError(
            f"saved is what {made_by.name}_forward returned beside y: call {made_by.name}{suffix}"
        )
