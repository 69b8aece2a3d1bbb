"""Subjects for the judge: both norms as a device computes them.

``truenorm verify tests/needs_gpu/on_device.py:layer_norm --require correct``, and ``:rms_norm``,
run the backend gpu; with ``_of_arrays``, they run on arrays in the memory of the device.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm as tn
import truenorm.verify as tv

Array = NDArray[Any]
TYPES = ["float16", "bfloat16", "float32"]
SECONDS = 600.0
"""For a call: kernels are compiled for each new row length."""


def on_device(array: Array) -> Any:
    """Return a copy on the device."""
    import pyopencl.array as cl_array

    from truenorm.kernels.gpu.opencl import default_runtime

    return cl_array.to_device(default_runtime().queue, np.ascontiguousarray(array))


def subject(norm: str, operation: Any, name: str, *, of_arrays: bool = False) -> tv.Subject:
    """Return a norm on the device as a subject of the judge."""
    normalize: Any = getattr(tn, f"{norm}_forward")
    differentiate: Any = getattr(tn, f"{norm}_backward")
    options = {} if of_arrays else {"backend": "gpu"}
    gradients = 3 if norm == "layer_norm" else 2

    def put(array: Array) -> Any:
        return on_device(array) if of_arrays else array

    def get(array: Any) -> Any:
        return array.get() if of_arrays else array

    def forward(*inputs: Any) -> tuple[Any, Any]:
        *arrays, eps = inputs
        y, saved = normalize(*map(put, arrays), eps=eps, **options)
        return get(y), saved

    def backward(dy: Array, saved: Any) -> Any:
        return [get(each) for each in differentiate(put(dy), saved, **options)[:gradients]]

    return tv.Subject(
        forward, backward, name=name, operation=operation, dtypes=TYPES, seconds=SECONDS
    )


layer_norm = subject("layer_norm", tv.LAYER_NORM, "layer norm on a device")
rms_norm = subject("rms_norm", tv.RMS_NORM, "RMSNorm on a device")
layer_norm_of_arrays = subject(
    "layer_norm", tv.LAYER_NORM, "layer norm of device arrays", of_arrays=True
)
rms_norm_of_arrays = subject("rms_norm", tv.RMS_NORM, "RMSNorm of device arrays", of_arrays=True)
