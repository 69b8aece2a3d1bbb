"""keras.ops on JAX, with gradients by jax.vjp."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.world.subjects.on_jax import compiled

keras: Any = import_module("keras")


def _layer_norm(_: int, eps: float) -> Callable[..., Any]:
    def function(x: Any, gamma: Any, beta: Any) -> Any:
        return keras.ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=eps)

    return function


def _rms_norm(_: int, eps: float) -> Callable[..., Any]:
    def function(x: Any, gamma: Any) -> Any:
        return keras.ops.rms_normalization(x, gamma, axis=-1, epsilon=eps)

    return function


layer_norm = compiled(_layer_norm, "keras.ops.layer_normalization on JAX", "layer_norm")
rms_norm = compiled(_rms_norm, "keras.ops.rms_normalization on JAX", "rms_norm")
