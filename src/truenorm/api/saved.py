"""The saved state of a forward pass, and the results of backward."""

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
    """State of a forward pass, for `truenorm.layer_norm_backward` or `rms_norm_backward`.

    It owns three numbers a row, one for RMSNorm. It references x and gamma without copying them:
    do not change them before backward. Backward raises RuntimeError if a row mean changed, or the
    mean square for RMSNorm. Other changes, and changes in fast mode on a device, are not detected.
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
        # A frozen dataclass sets its fields one by one, which takes a sixth of a small call.
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
        """Raise AttributeError: the object is read-only."""
        raise AttributeError(f"{name} cannot be set: Saved is read-only")

    @property
    def nbytes(self) -> int:
        """Memory owned by the object, in bytes."""
        return self.statistics.nbytes

    def __repr__(self) -> str:
        """Return the memory it owns and the arrays it references."""
        alive = [f"x {self.x.shape} {self.x.dtype}, {self.x.nbytes} bytes"]
        if self.gamma is not None:
            alive.append(f"gamma {self.gamma.shape} {self.gamma.dtype}, {self.gamma.nbytes} bytes")
        rows, numbers = self.statistics.shape
        return (
            f"<truenorm.Saved: owns {numbers} number{'s'[: numbers != 1]} for each of {rows} "
            f"rows, {self.nbytes} bytes; keeps alive {' and '.join(alive)}>"
        )


def check_saved(norm: Norm, saved: Any, suffix: str) -> None:
    """Raise unless `saved` is from a forward pass of this norm.

    `suffix` is the end of the name of the function that was called.
    """
    if not isinstance(saved, Saved):
        raise TypeError(
            f"saved must be the second result of {norm.name}_forward, got {type(saved).__name__}"
        )
    made_by = saved.settings.norm
    if made_by != norm:
        raise ValueError(
            f"saved must be a result of {norm.name}_forward, got one of {made_by.name}_forward: "
            f"call {made_by.name}{suffix}"
        )
