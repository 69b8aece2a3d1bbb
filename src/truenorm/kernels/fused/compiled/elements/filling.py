"""Scratch space, and filling it: as loops, since Numba takes seconds to compile `a[:] = b`."""

from typing import Any

from truenorm.kernels.fused.compiling import compiled

__all__ = ["copy", "fill"]


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
