"""Scratch space, and filling it: as loops, since Numba takes seconds to compile `a[:] = b`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.fused.compiling import compiled

__all__ = ["aligned", "copy", "fill"]

LINE = 8
"""How many float64 numbers a cache line holds."""


def aligned(count: int) -> NDArray[np.float64]:
    """Return float64 numbers that begin with a cache line: vectors that straddle two are slow."""
    numbers = np.empty(count + LINE)
    skipped = -(numbers.ctypes.data // numbers.itemsize) % LINE
    return numbers[skipped : skipped + count]


@compiled
def fill(array: Any, value: Any) -> None:
    """Set every element to a value."""
    for j in range(array.shape[0]):
        array[j] = value


@compiled
def copy(array: Any, values: Any) -> None:
    """Set every element to that of another array."""
    for j in range(array.shape[0]):
        array[j] = values[j]
