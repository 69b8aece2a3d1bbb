"""Sonnet's LayerNorm on TensorFlow."""

from importlib import import_module
from typing import Any

from benchmarks.world.subjects.tensorflow_norms import subject

sonnet: Any = import_module("sonnet")


def _layer_norm(x: Any, gamma: Any, beta: Any, eps: float) -> Any:
    layer = sonnet.LayerNorm(-1, create_scale=False, create_offset=False, eps=eps)
    return layer(x, scale=gamma, offset=beta)


layer_norm = subject(_layer_norm, "sonnet.LayerNorm", "layer_norm")
