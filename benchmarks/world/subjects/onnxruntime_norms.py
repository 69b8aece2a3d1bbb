"""ONNX Runtime's CPU provider on models of one node."""

from functools import cache
from importlib import import_module
from typing import Any

from benchmarks.world.subjects.onnx_node import Array, model

runtime: Any = import_module("onnxruntime")


@cache
def session(operator: str, eps: float | None, dtype: str) -> Any:
    """Start a session of one thread."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(
        model(operator, eps, dtype), options, providers=["CPUExecutionProvider"]
    )


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Run LayerNormalization."""
    feed = {"x": x, "gamma": gamma, "beta": beta}
    y: Array = session("LayerNormalization", eps, x.dtype.name).run(None, feed)[0]
    return y


def rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    """Run RMSNormalization."""
    y: Array = session("RMSNormalization", eps, x.dtype.name).run(None, {"x": x, "gamma": gamma})[
        0
    ]
    return y


def simplified(x: Array, gamma: Array, eps: float) -> Array:
    """Run SimplifiedLayerNormalization, an RMSNorm that only ONNX Runtime has."""
    feed = {"x": x, "gamma": gamma}
    y: Array = session("SimplifiedLayerNormalization", eps, x.dtype.name).run(None, feed)[0]
    return y
