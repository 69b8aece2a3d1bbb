"""OpenVINO's CPU plugin on models of one ONNX node."""

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.world.subjects.onnx_node import Array, model

openvino: Any = import_module("openvino")
core = openvino.Core()
core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1})


@cache
def compiled(operator: str, eps: float | None, dtype: str) -> Any:
    """Compile a model; the precision of inference is that of its type."""
    precision = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[dtype]
    return core.compile_model(
        core.read_model(model(operator, eps, dtype)),
        "CPU",
        {"INFERENCE_PRECISION_HINT": precision},
    )


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Run LayerNormalization."""
    return np.array(compiled("LayerNormalization", eps, x.dtype.name)([x, gamma, beta])[0])


def rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    """Run RMSNormalization."""
    return np.array(compiled("RMSNormalization", eps, x.dtype.name)([x, gamma])[0])
