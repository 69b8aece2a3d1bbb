"""Norms of penzai on named arrays."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.world.subjects.on_jax import compiled

pz: Any = import_module("penzai.pz")


def _layer_norm(_: int, eps: float) -> Callable[..., Any]:
    def function(x: Any, gamma: Any, beta: Any) -> Any:
        rows = pz.nx.wrap(x).tag("rows", "size")
        y = pz.nn.Standardize(across="size", epsilon=eps)(rows)
        y = y * pz.nx.wrap(gamma).tag("size") + pz.nx.wrap(beta).tag("size")
        return y.unwrap("rows", "size")

    return function


def _rms_norm(_: int, eps: float) -> Callable[..., Any]:
    def function(x: Any, gamma: Any) -> Any:
        rows = pz.nx.wrap(x).tag("rows", "size")
        y = pz.nn.RMSStandardize(across="size", epsilon=eps)(rows)
        return (y * pz.nx.wrap(gamma).tag("size")).unwrap("rows", "size")

    return function


layer_norm = compiled(_layer_norm, "penzai Standardize", "layer_norm")
rms_norm = compiled(_rms_norm, "penzai RMSStandardize", "rms_norm")
