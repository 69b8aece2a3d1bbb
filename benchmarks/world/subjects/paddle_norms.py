"""PaddlePaddle on a CPU, with its own gradients; it takes eps of at most 1e-3."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import truenorm.verify as tv
from benchmarks.world.subjects.arguments import gradients, split
from benchmarks.world.subjects.bits import BFLOAT16, is_bfloat16
from benchmarks.world.subjects.onnx_node import Array

paddle: Any = import_module("paddle")
paddle.set_device("cpu")
functional = paddle.nn.functional


def to_paddle(array: Array) -> Any:
    """Return a tensor."""
    if is_bfloat16(array):
        return paddle.to_tensor(array.astype(np.float32)).astype("bfloat16")
    return paddle.to_tensor(array)


def from_paddle(tensor: Any) -> Array:
    """Return an array."""
    if tensor.dtype == paddle.bfloat16:
        wide: Array = tensor.astype("float32").numpy()
        return wide.astype(BFLOAT16)
    array: Array = tensor.numpy()
    return array


def subject(function: Callable[..., Any], name: str, operation: str) -> tv.Subject:
    """Return a subject that calls a function, and differentiates it."""

    def forward(*arguments: Any) -> tuple[Array, Any]:
        arrays, rest = split(arguments)
        inputs = [to_paddle(each) for each in arrays]
        for each in inputs:
            each.stop_gradient = False
        y = function(*inputs, *rest)
        return from_paddle(y), (y, inputs)

    def backward(dy: Array, saved: Any) -> Any:
        y, inputs = saved
        tensors = paddle.grad([y], inputs, [to_paddle(dy)], retain_graph=True)
        return gradients(map(from_paddle, tensors))

    return tv.Subject(
        forward,
        backward,
        name=name,
        operation=operation,
        dtypes=["float32", "bfloat16", "float16"],
    )


def _layer_norm(x: Any, gamma: Any, beta: Any, eps: float) -> Any:
    return functional.layer_norm(x, [x.shape[-1]], gamma, beta, eps)


def _rms_norm(x: Any, gamma: Any, eps: float) -> Any:
    y = functional.rms_norm(x, [x.shape[-1]], gamma, eps)
    return y[0] if isinstance(y, (tuple, list)) else y


layer_norm = subject(_layer_norm, "paddle layer_norm", "layer_norm,eps=1e-5")
rms_norm = subject(_rms_norm, "paddle rms_norm", "rms_norm,eps=1e-5")
