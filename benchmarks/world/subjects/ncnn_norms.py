"""ncnn's layers LayerNorm and RMSNorm."""

import tempfile
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.world.subjects.onnx_node import Array

ncnn: Any = import_module("ncnn")


@lru_cache(64)
def loaded(layer: str, options: str, weights: bytes) -> Any:
    """Load a network of one layer."""
    net = ncnn.Net()
    net.opt.num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        parameters, model = Path(folder, "norm.param"), Path(folder, "norm.bin")
        parameters.write_text(
            f"7767517\n2 2\nInput in0 0 1 in0\n{layer} norm 1 1 in0 out0 {options}\n"
        )
        model.write_bytes(weights)
        if net.load_param(str(parameters)) or net.load_model(str(model)):
            raise ValueError(f"ncnn could not load a layer {layer}")
    return net


def run(layer: str, options: str, x: Array, parameters: Sequence[Array] = ()) -> Array:
    """Run a layer on rows."""
    weights = b"".join(np.ascontiguousarray(each, np.float32).tobytes() for each in parameters)
    extractor = loaded(layer, options, weights).create_extractor()
    extractor.input("in0", ncnn.Mat(np.ascontiguousarray(x)).clone())
    _, result = extractor.extract("out0")
    return np.array(result).reshape(x.shape)


def options_of(x: Array, eps: float) -> str:
    """Return the options of a norm with parameters."""
    return f"0={x.shape[1]} 1={float(np.float32(eps)):e} 2=1"


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Run LayerNorm."""
    return run("LayerNorm", options_of(x, eps), x, [gamma, beta])


def rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    """Run RMSNorm."""
    return run("RMSNorm", options_of(x, eps), x, [gamma])
