"""ONNX Runtime, on the CPU. It has no backward."""

from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

runtime: Any = import_module("onnxruntime")
models: Any = import_module("onnx_models")  # beside this file

Array = NDArray[Any]


@cache
def session(operator: str, dtype: str, eps: float) -> Any:
    """Return a session, with the settings that the runtime has by itself."""
    model = models.model(operator, dtype, eps).SerializeToString()
    return runtime.InferenceSession(model, providers=["CPUExecutionProvider"])


def value(array: Array) -> Any:
    """Return a value over the same memory; it takes NumPy's bfloat16 only as bits."""
    name = array.dtype.name
    bits = array.view(np.uint16) if name == "bfloat16" else array
    return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, models.type_of(name))


def forward(operator: str, x: Array, *given: Any) -> Array:
    """Run the model, with its inputs and its output bound to arrays; eps is the last."""
    *parameters, eps = given
    names, _ = models.OPERATORS[operator]
    y = np.empty_like(x)
    chosen = session(operator, x.dtype.name, eps)
    binding = chosen.io_binding()
    for name, array in zip(("x", *names), (x, *parameters), strict=True):
        binding.bind_ortvalue_input(name, value(array))
    binding.bind_ortvalue_output("y", value(y))
    chosen.run_with_iobinding(binding)
    return y


FOUR = ["float16", "bfloat16", "float32", "float64"]
subject = tv.Subject(partial(forward, "LayerNormalization"), name="ONNX Runtime", dtypes=FOUR)
# Its RMSNormalization is made of other operators, one of which has no bfloat16.
rms_norm = tv.Subject(
    partial(forward, "RMSNormalization"),
    name="ONNX Runtime",
    dtypes=["float16", "float32", "float64"],
    operation=tv.RMS_NORM,
)
simplified = tv.Subject(
    partial(forward, "SimplifiedLayerNormalization"),
    name="ONNX Runtime, simplified",
    dtypes=FOUR,
    operation=tv.RMS_NORM,
)
