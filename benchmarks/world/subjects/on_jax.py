"""Functions of JAX as subjects: compiled, with gradients by jax.vjp."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

import truenorm.verify as tv
from benchmarks.world.subjects.onnx_node import Array

jax: Any = import_module("jax")


def compiled(
    make: Callable[[int, float], Callable[..., Any]], name: str, operation: str
) -> tv.Subject:
    """Return a subject; `make` returns the function of a row length and eps."""

    @cache
    def with_gradients(size: int, eps: float) -> Any:
        function = make(size, eps)
        return jax.jit(lambda *inputs: jax.vjp(function, *inputs))

    gradients_of = jax.jit(lambda pullback, dy: pullback(dy))

    def forward(*arguments: Any) -> tuple[Array, Any]:
        *inputs, eps = arguments
        y, pullback = with_gradients(inputs[0].shape[-1], float(eps))(*inputs)
        return np.asarray(y), pullback

    def backward(dy: Array, pullback: Any) -> tuple[Array, ...]:
        return tuple(np.asarray(each) for each in gradients_of(pullback, dy))

    return tv.Subject(
        forward,
        backward,
        name=name,
        operation=operation,
        dtypes=["float32", "bfloat16"],
        seconds=120,
    )
