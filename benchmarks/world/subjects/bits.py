"""bfloat16 for packages that do not take it from NumPy."""

from importlib import import_module

import numpy as np

from benchmarks.world.subjects.onnx_node import Array

BFLOAT16 = np.dtype(import_module("ml_dtypes").bfloat16)


def is_bfloat16(array: Array) -> bool:
    """Return True for an array of bfloat16."""
    return bool(array.dtype == BFLOAT16)


def to_bits(array: Array) -> Array:
    """Return the bits of an array of bfloat16."""
    return np.ascontiguousarray(array).view(np.uint16)


def from_bits(bits: Array) -> Array:
    """Return the array of bfloat16 with some bits."""
    return np.array(bits).view(BFLOAT16)
