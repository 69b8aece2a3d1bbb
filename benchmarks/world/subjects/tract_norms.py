"""tract on a model of one ONNX node."""

import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.world.subjects.onnx_node import Array, model

tract: Any = import_module("tract")


@cache
def runnable(operator: str, eps: float | None, dtype: str) -> Any:
    """Load and optimize a model."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "norm.onnx")
        file.write_bytes(model(operator, eps, dtype))
        return tract.onnx().load(str(file)).into_model().into_runnable()


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Run LayerNormalization."""
    made = runnable("LayerNormalization", eps, x.dtype.name)
    return np.array(made.run([x, gamma, beta])[0].to_numpy())
