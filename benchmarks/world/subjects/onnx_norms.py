"""The reference evaluator of ONNX, written in NumPy, on models of one node."""

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.world.subjects.onnx_node import Array, model

reference: Any = import_module("onnx.reference")


@cache
def evaluator(operator: str, eps: float | None, dtype: str) -> Any:
    """Load a model."""
    onnx: Any = import_module("onnx")
    return reference.ReferenceEvaluator(onnx.load_model_from_string(model(operator, eps, dtype)))


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Run LayerNormalization."""
    feed = {"x": x, "gamma": gamma, "beta": beta}
    return np.asarray(evaluator("LayerNormalization", eps, x.dtype.name).run(None, feed)[0])


def rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    """Run RMSNormalization."""
    feed = {"x": x, "gamma": gamma}
    return np.asarray(evaluator("RMSNormalization", eps, x.dtype.name).run(None, feed)[0])
