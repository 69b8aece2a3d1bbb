"""The operations of this package in both backends, to be judged by ``benchmarks.campaign``."""

from functools import partial
from typing import Any

from numpy.typing import NDArray

import truenorm
import truenorm.verify as tv

__all__ = [
    "layer_norm_native",
    "layer_norm_reference",
    "rms_norm_native",
    "rms_norm_reference",
]

Array = NDArray[Any]
DTYPES = ("float16", "bfloat16", "float32", "float64")


def layer_norm_forward(
    backend: str, x: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Array, truenorm.Saved]:
    """Normalize rows."""
    return truenorm.layer_norm_forward(x, gamma, beta, eps=eps, backend=backend)


def layer_norm_backward(backend: str, dy: Array, saved: truenorm.Saved) -> truenorm.Gradients:
    """Return the three gradients."""
    return truenorm.layer_norm_backward(dy, saved, backend=backend)


def rms_norm_forward(
    backend: str, x: Array, gamma: Array, eps: float
) -> tuple[Array, truenorm.Saved]:
    """Normalize rows by their root mean square."""
    return truenorm.rms_norm_forward(x, gamma, eps=eps, backend=backend)


def rms_norm_backward(
    backend: str, dy: Array, saved: truenorm.Saved
) -> tuple[Array, Array | None]:
    """Return the two gradients that there are."""
    dx, dgamma, _ = truenorm.rms_norm_backward(dy, saved, backend=backend)
    return dx, dgamma


layer_norm_reference, layer_norm_native = (
    tv.Subject(
        partial(layer_norm_forward, backend),
        partial(layer_norm_backward, backend),
        name=f"layer_norm, {backend}",
        dtypes=DTYPES,
        seconds=600,
    )
    for backend in ("reference", "native")
)
rms_norm_reference, rms_norm_native = (
    tv.Subject(
        partial(rms_norm_forward, backend),
        partial(rms_norm_backward, backend),
        name=f"rms_norm, {backend}",
        dtypes=DTYPES,
        seconds=600,
        operation=tv.RMS_NORM,
    )
    for backend in ("reference", "native")
)
