"""The reference evaluator of ONNX, which is NumPy. It has no backward."""

from importlib import import_module
from typing import Any

from numpy.typing import NDArray

import truenorm.verify as tv

reference: Any = import_module("onnx.reference")
layer_norm: Any = import_module("onnx_models").layer_norm  # beside this file

Array = NDArray[Any]


def forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Evaluate the model."""
    evaluator = reference.ReferenceEvaluator(layer_norm(x.dtype.name, eps))
    (y,) = evaluator.run(None, {"x": x, "gamma": gamma, "beta": beta})
    normalized: Array = y
    return normalized


subject = tv.Subject(
    forward,
    name="ONNX reference evaluator",
    dtypes=["float16", "bfloat16", "float32", "float64"],
)
