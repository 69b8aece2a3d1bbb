"""mlx.core.fast on a CPU, with gradients by mlx.core.vjp."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import truenorm.verify as tv
from benchmarks.world.subjects.arguments import gradients, split
from benchmarks.world.subjects.bits import from_bits, is_bfloat16, to_bits
from benchmarks.world.subjects.onnx_node import Array

mx: Any = import_module("mlx.core")
mx.set_default_device(mx.cpu)


def to_mlx(array: Array) -> Any:
    """Return an array of MLX."""
    if is_bfloat16(array):
        return mx.array(to_bits(array)).view(mx.bfloat16)
    return mx.array(array)


def from_mlx(array: Any) -> Array:
    """Return an array of NumPy."""
    if array.dtype == mx.bfloat16:
        return from_bits(array.view(mx.uint16))
    return np.array(array)


def subject(function: Callable[..., Any], name: str, operation: str) -> tv.Subject:
    """Return a subject that calls a function, and differentiates it."""

    def forward(*arguments: Any) -> tuple[Array, Any]:
        arrays, rest = split(arguments)
        inputs = [to_mlx(each) for each in arrays]

        def called(*tensors: Any) -> Any:
            return function(*tensors, *rest)

        return from_mlx(called(*inputs)), (called, inputs)

    def backward(dy: Array, saved: Any) -> Any:
        called, inputs = saved
        return gradients(map(from_mlx, mx.vjp(called, inputs, [to_mlx(dy)])[1]))

    return tv.Subject(
        forward,
        backward,
        name=name,
        operation=operation,
        dtypes=["float32", "bfloat16", "float16"],
    )


layer_norm = subject(mx.fast.layer_norm, "mlx.core.fast.layer_norm", "layer_norm")
rms_norm = subject(mx.fast.rms_norm, "mlx.core.fast.rms_norm", "rms_norm")
