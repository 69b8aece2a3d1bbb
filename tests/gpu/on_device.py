"""For the judge, by the command line: both norms as the backend gpu computes them.

``truenorm verify tests/gpu/on_device.py:layer_norm --require correct``, and ``:rms_norm``.
"""

from typing import Any

from numpy.typing import NDArray

import truenorm as tn
import truenorm.verify as tv

Array = NDArray[Any]
TYPES = ["float16", "bfloat16", "float32"]
SECONDS = 600.0
"""For a call: a width that is new is compiled for."""


def layer_norm_forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Any, Any]:
    """Normalize on the device; arrays are NumPy's."""
    return tn.layer_norm_forward(x, gamma, beta, eps=eps, backend="gpu")


def layer_norm_backward(dy: Array, saved: Any) -> Any:
    """Carry a gradient back."""
    return tn.layer_norm_backward(dy, saved, backend="gpu")


def rms_norm_forward(x: Array, gamma: Array, eps: float) -> tuple[Any, Any]:
    """Normalize on the device; arrays are NumPy's."""
    return tn.rms_norm_forward(x, gamma, eps=eps, backend="gpu")


def rms_norm_backward(dy: Array, saved: Any) -> Any:
    """Carry a gradient back."""
    return tn.rms_norm_backward(dy, saved, backend="gpu")[:2]


layer_norm = tv.Subject(
    layer_norm_forward,
    layer_norm_backward,
    name="truenorm on a device",
    dtypes=TYPES,
    seconds=SECONDS,
)
rms_norm = tv.Subject(
    rms_norm_forward,
    rms_norm_backward,
    name="truenorm's RMSNorm on a device",
    operation=tv.RMS_NORM,
    dtypes=TYPES,
    seconds=SECONDS,
)
