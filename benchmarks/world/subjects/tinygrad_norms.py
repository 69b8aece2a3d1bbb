"""tinygrad on a CPU, with its gradients."""

from importlib import import_module
from typing import Any

import truenorm.verify as tv
from benchmarks.world.subjects.bits import from_bits, is_bfloat16, to_bits
from benchmarks.world.subjects.onnx_node import Array

tinygrad: Any = import_module("tinygrad")
nn: Any = import_module("tinygrad.nn")
TYPES = tinygrad.dtypes


def to_tinygrad(array: Array) -> Any:
    """Return a tensor."""
    if is_bfloat16(array):
        return tinygrad.Tensor(to_bits(array)).bitcast(TYPES.bfloat16)
    return tinygrad.Tensor(array)


def from_tinygrad(tensor: Any) -> Array:
    """Return an array."""
    if tensor.dtype == TYPES.bfloat16:
        return from_bits(tensor.bitcast(TYPES.uint16).numpy())
    array: Array = tensor.numpy()
    return array


def subject(layer: Any, name: str, operation: str) -> tv.Subject:
    """Return a subject that calls a layer, and differentiates it."""

    def forward(*arguments: Any) -> tuple[Array, Any]:
        *arrays, eps = arguments
        inputs = [to_tinygrad(each) for each in arrays]
        module = layer(inputs[0].shape[-1], eps)
        module.weight = inputs[1]
        if len(inputs) > 2:
            module.bias = inputs[2]
        y = module(inputs[0])
        return from_tinygrad(y), (y, inputs)

    def backward(dy: Array, saved: Any) -> tuple[Array, ...]:
        y, inputs = saved
        gradients = y.gradient(*inputs, gradient=to_tinygrad(dy))
        return tuple(map(from_tinygrad, gradients))

    return tv.Subject(forward, backward, name=name, operation=operation, dtypes=["float32"])


layer_norm = subject(nn.LayerNorm, "tinygrad.nn.LayerNorm", "layer_norm")
rms_norm = subject(nn.RMSNorm, "tinygrad.nn.RMSNorm", "rms_norm")
