"""The reference evaluator of ONNX, which is NumPy. It has no backward."""

from functools import partial
from importlib import import_module
from typing import Any

from numpy.typing import NDArray

import truenorm.verify as tv

reference: Any = import_module("onnx.reference")
models: Any = import_module("onnx_models")  # beside this file

Array = NDArray[Any]


def forward(operator: str, x: Array, *given: Any) -> Array:
    """Evaluate the model; what is given are the parameters, and eps."""
    *parameters, eps = given
    names, _ = models.OPERATORS[operator]
    evaluator = reference.ReferenceEvaluator(models.model(operator, x.dtype.name, eps))
    (y,) = evaluator.run(None, {"x": x, **dict(zip(names, parameters, strict=True))})
    normalized: Array = y
    return normalized


subject, rms_norm = (
    tv.Subject(
        partial(forward, operator),
        name="ONNX reference evaluator",
        dtypes=["float16", "bfloat16", "float32", "float64"],
        operation=operation,
    )
    for operator, operation in (
        ("LayerNormalization", tv.LAYER_NORM),
        ("RMSNormalization", tv.RMS_NORM),
    )
)
