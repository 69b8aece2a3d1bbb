"""truenorm in both modes with the default backend, and in correct mode by each backend."""

from functools import partial
from typing import Any

from numpy.typing import NDArray

import truenorm
import truenorm.verify as tv

Array = NDArray[Any]
DTYPES = ("float16", "bfloat16", "float32", "float64")


def layer_norm(
    options: dict[str, Any], x: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Array, truenorm.Saved]:
    """Run forward of layer norm."""
    return truenorm.layer_norm_forward(x, gamma, beta, eps=eps, **options)


def rms_norm(
    options: dict[str, Any], x: Array, gamma: Array, eps: float
) -> tuple[Array, truenorm.Saved]:
    """Run forward of RMSNorm."""
    return truenorm.rms_norm_forward(x, gamma, eps=eps, **options)


def layer_norm_backward(
    backend: str | None, dy: Array, saved: truenorm.Saved
) -> truenorm.Gradients:
    """Return the three gradients."""
    return truenorm.layer_norm_backward(dy, saved, backend=backend)


def rms_norm_backward(
    backend: str | None, dy: Array, saved: truenorm.Saved
) -> tuple[Array, Array | None]:
    """Return the two gradients."""
    dx, dgamma, _ = truenorm.rms_norm_backward(dy, saved, backend=backend)
    return dx, dgamma


def subject(norm: str, name: str, seconds: float, **options: Any) -> tv.Subject:
    """Return a subject with these options of forward."""
    forward: Any = layer_norm if norm == "layer_norm" else rms_norm
    backward: Any = layer_norm_backward if norm == "layer_norm" else rms_norm_backward
    return tv.Subject(
        partial(forward, options),
        partial(backward, options.get("backend")),
        name=name,
        dtypes=DTYPES,
        seconds=seconds,
        operation=tv.LAYER_NORM if norm == "layer_norm" else tv.RMS_NORM,
    )


correct, fast = (
    subject("layer_norm", f"truenorm {mode}", 300, rounding=mode) for mode in ("correct", "fast")
)
rms_norm_correct, rms_norm_fast = (
    subject("rms_norm", f"truenorm {mode}", 300, rounding=mode) for mode in ("correct", "fast")
)
