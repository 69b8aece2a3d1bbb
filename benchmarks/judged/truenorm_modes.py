"""truenorm, in both modes, with the backend that it chooses."""

from functools import partial
from typing import Any

from numpy.typing import NDArray

import truenorm
import truenorm.verify as tv

Array = NDArray[Any]


def forward(
    rounding: str, x: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Array, truenorm.Saved]:
    """Normalize rows."""
    return truenorm.layer_norm_forward(x, gamma, beta, eps=eps, rounding=rounding)


correct, fast = (
    tv.Subject(
        partial(forward, rounding),
        truenorm.layer_norm_backward,
        name=f"truenorm {rounding}",
        dtypes=["float16", "bfloat16", "float32", "float64"],
        seconds=300,
    )
    for rounding in ("correct", "fast")
)


def rms_norm_forward(
    rounding: str, x: Array, gamma: Array, eps: float
) -> tuple[Array, truenorm.Saved]:
    """Normalize rows by their root mean square."""
    return truenorm.rms_norm_forward(x, gamma, eps=eps, rounding=rounding)


def rms_norm_backward(dy: Array, saved: truenorm.Saved) -> tuple[Array, Array | None]:
    """Return the two gradients that there are."""
    dx, dgamma, _ = truenorm.rms_norm_backward(dy, saved)
    return dx, dgamma


rms_norm_correct, rms_norm_fast = (
    tv.Subject(
        partial(rms_norm_forward, rounding),
        rms_norm_backward,
        name=f"truenorm {rounding}",
        dtypes=["float16", "bfloat16", "float32", "float64"],
        seconds=300,
        operation=tv.RMS_NORM,
    )
    for rounding in ("correct", "fast")
)
