"""For the judge, by the command line: both norms as a device computes them.

``truenorm verify tests/gpu/on_device.py:layer_norm --require correct``, and ``:rms_norm``, by the
backend gpu; with ``_of_arrays``, of arrays that are on the device.
"""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import truenorm as tn
import truenorm.verify as tv

Array = NDArray[Any]
TYPES = ["float16", "bfloat16", "float32"]
SECONDS = 600.0
"""For a call: a width that is new is compiled for."""


def on_device(array: Array) -> Any:
    """Return a copy on the device."""
    import pyopencl.array as cl_array

    from truenorm.kernels.gpu.runtime import opencl

    return cl_array.to_device(opencl().queue, np.ascontiguousarray(array))


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


def layer_norm_forward_of_arrays(
    x: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Any, Any]:
    """Normalize where arrays are."""
    y, saved = cast(Any, tn.layer_norm_forward(*map(on_device, (x, gamma, beta)), eps=eps))
    return y.get(), saved


def layer_norm_backward_of_arrays(dy: Array, saved: Any) -> Any:
    """Carry a gradient back where arrays are."""
    return [each.get() for each in cast(Any, tn.layer_norm_backward(on_device(dy), saved))]


def rms_norm_forward_of_arrays(x: Array, gamma: Array, eps: float) -> tuple[Any, Any]:
    """Normalize where arrays are."""
    y, saved = cast(Any, tn.rms_norm_forward(on_device(x), on_device(gamma), eps=eps))
    return y.get(), saved


def rms_norm_backward_of_arrays(dy: Array, saved: Any) -> Any:
    """Carry a gradient back where arrays are."""
    return [each.get() for each in cast(Any, tn.rms_norm_backward(on_device(dy), saved))[:2]]


def subject(forward: Any, backward: Any, name: str, operation: Any = tv.LAYER_NORM) -> tv.Subject:
    """Return what the judge is handed."""
    return tv.Subject(
        forward, backward, name=name, operation=operation, dtypes=TYPES, seconds=SECONDS
    )


layer_norm = subject(layer_norm_forward, layer_norm_backward, "layer norm on a device")
rms_norm = subject(rms_norm_forward, rms_norm_backward, "RMSNorm on a device", tv.RMS_NORM)
layer_norm_of_arrays = subject(
    layer_norm_forward_of_arrays, layer_norm_backward_of_arrays, "layer norm of arrays there"
)
rms_norm_of_arrays = subject(
    rms_norm_forward_of_arrays, rms_norm_backward_of_arrays, "RMSNorm of arrays there", tv.RMS_NORM
)
