"""Norms of Flax."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.world.subjects.on_jax import compiled

linen: Any = import_module("flax.linen")


def _layer_norm(_: int, eps: float) -> Callable[..., Any]:
    def function(x: Any, gamma: Any, beta: Any) -> Any:
        layer = linen.LayerNorm(epsilon=eps, dtype=x.dtype, param_dtype=x.dtype)
        return layer.apply({"params": {"scale": gamma, "bias": beta}}, x)

    return function


def _rms_norm(_: int, eps: float) -> Callable[..., Any]:
    def function(x: Any, gamma: Any) -> Any:
        layer = linen.RMSNorm(epsilon=eps, dtype=x.dtype, param_dtype=x.dtype)
        return layer.apply({"params": {"scale": gamma}}, x)

    return function


layer_norm = compiled(_layer_norm, "flax.linen.LayerNorm", "layer_norm")
rms_norm = compiled(_rms_norm, "flax.linen.RMSNorm", "rms_norm")
