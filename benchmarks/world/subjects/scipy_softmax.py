"""scipy.special: softmax and log_softmax."""

from importlib import import_module
from typing import Any

from benchmarks.world.subjects.onnx_node import Array

special: Any = import_module("scipy.special")


def softmax(x: Array) -> Array:
    """Call scipy.special.softmax."""
    y: Array = special.softmax(x, axis=-1)
    return y


def log_softmax(x: Array) -> Array:
    """Call scipy.special.log_softmax."""
    y: Array = special.log_softmax(x, axis=-1)
    return y
