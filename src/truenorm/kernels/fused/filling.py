"""Scratch arrays, and filling them: as loops, since Numba takes seconds to compile `a[:] = b`."""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiling import compiled

__all__ = ["aligned", "copy", "fill"]

LINE = 8
"""How many float64 numbers a cache line holds."""


@compiled
def aligned(count: Any) -> Any:
    """Return float64 numbers that begin with a cache line: vectors that straddle two are slow."""
    numbers = np.empty(count + LINE)
    skipped = (-(numbers.ctypes.data >> 3)) & (LINE - 1)
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
