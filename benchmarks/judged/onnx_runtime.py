"""ONNX Runtime, on the CPU. It has no backward."""

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

runtime: Any = import_module("onnxruntime")
models: Any = import_module("onnx_models")  # beside this file

Array = NDArray[Any]


@cache
def session(dtype: str, eps: float) -> Any:
    """Return a session, with the settings that the runtime has by itself."""
    model = models.layer_norm(dtype, eps).SerializeToString()
    return runtime.InferenceSession(model, providers=["CPUExecutionProvider"])


def value(array: Array) -> Any:
    """Return a value over the same memory; it takes NumPy's bfloat16 only as bits."""
    name = array.dtype.name
    bits = array.view(np.uint16) if name == "bfloat16" else array
    return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, models.type_of(name))


def forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Run the model, with its inputs and its output bound to arrays."""
    y = np.empty_like(x)
    chosen = session(x.dtype.name, eps)
    binding = chosen.io_binding()
    for name, array in (("x", x), ("gamma", gamma), ("beta", beta)):
        binding.bind_ortvalue_input(name, value(array))
    binding.bind_ortvalue_output("y", value(y))
    chosen.run_with_iobinding(binding)
    return y


subject = tv.Subject(
    forward,
    name="ONNX Runtime",
    dtypes=["float16", "bfloat16", "float32", "float64"],
)
