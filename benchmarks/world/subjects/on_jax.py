"""Functions of JAX as subjects: compiled, with gradients by jax.vjp."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

import truenorm.verify as tv
from benchmarks.world.subjects.arguments import gradients, split
from benchmarks.world.subjects.onnx_node import Array

jax: Any = import_module("jax")


def compiled(
    make: Callable[[int, float], Callable[..., Any]], name: str, operation: str
) -> tv.Subject:
    """Return a subject; `make` returns the function of a row length and eps.

    A function with labels has them last; they have no gradient.
    """

    @cache
    def with_gradients(size: int, eps: float) -> Any:
        function = make(size, eps)

        def with_pullback(inputs: Any, labels: Any) -> Any:
            return jax.vjp(lambda *arrays: function(*arrays, *labels), *inputs)

        return jax.jit(with_pullback)

    gradients_of = jax.jit(lambda pullback, dy: pullback(dy))

    def forward(*arguments: Any) -> tuple[Array, Any]:
        inputs, rest = split(arguments)
        labels = [each for each in rest if isinstance(each, np.ndarray)]
        (eps,) = rest[len(labels) :] or [0.0]
        y, pullback = with_gradients(inputs[0].shape[-1], float(eps))(inputs, labels)
        return np.asarray(y), pullback

    def backward(dy: Array, pullback: Any) -> Any:
        return gradients(np.asarray(each) for each in gradients_of(pullback, dy))

    return tv.Subject(
        forward,
        backward,
        name=name,
        operation=operation,
        dtypes=["float32", "bfloat16"],
        seconds=120,
    )
