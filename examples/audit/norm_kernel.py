"""A correct kernel; test_norm.py has its test."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    """Return y, in the type of x."""
    root = np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps))
    y: Array = x / root * weight
    return y
