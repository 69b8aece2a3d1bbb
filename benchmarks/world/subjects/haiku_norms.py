"""Norms of Haiku."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.world.subjects.on_jax import compiled

haiku: Any = import_module("haiku")


def _layer_norm(_: int, eps: float) -> Callable[..., Any]:
    def called(x: Any) -> Any:
        return haiku.LayerNorm(-1, True, True, eps=eps, name="norm")(x)

    apply = haiku.without_apply_rng(haiku.transform(called)).apply
    return lambda x, gamma, beta: apply({"norm": {"scale": gamma, "offset": beta}}, x)


def _rms_norm(_: int, eps: float) -> Callable[..., Any]:
    def called(x: Any) -> Any:
        return haiku.RMSNorm(-1, eps=eps, name="norm")(x)

    apply = haiku.without_apply_rng(haiku.transform(called)).apply
    return lambda x, gamma: apply({"norm": {"scale": gamma}}, x)


layer_norm = compiled(_layer_norm, "haiku.LayerNorm", "layer_norm")
rms_norm = compiled(_rms_norm, "haiku.RMSNorm", "rms_norm")
