"""Norms of Equinox, over rows by jax.vmap."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.world.subjects.on_jax import compiled, jax

equinox: Any = import_module("equinox")


def _layer_norm(size: int, eps: float) -> Callable[..., Any]:
    def function(x: Any, gamma: Any, beta: Any) -> Any:
        layer = equinox.nn.LayerNorm(size, eps=eps)
        layer = equinox.tree_at(lambda each: (each.weight, each.bias), layer, (gamma, beta))
        return jax.vmap(layer)(x)

    return function


def _rms_norm(size: int, eps: float) -> Callable[..., Any]:
    def function(x: Any, gamma: Any) -> Any:
        layer = equinox.nn.RMSNorm(size, eps=eps, use_bias=False)
        layer = equinox.tree_at(lambda each: each.weight, layer, gamma)
        return jax.vmap(layer)(x)

    return function


layer_norm = compiled(_layer_norm, "equinox.nn.LayerNorm", "layer_norm")
rms_norm = compiled(_rms_norm, "equinox.nn.RMSNorm", "rms_norm")
