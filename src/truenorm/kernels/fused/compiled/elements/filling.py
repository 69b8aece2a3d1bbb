"""Scratch space, and filling it: as loops, since Numba takes seconds to compile `a[:] = b`."""

from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Array, Element

__all__ = ["copy", "fill"]


@compiled
def fill(array: Array, value: Element) -> None:
    """Set every element to a value."""
    for j in range(array.shape[0]):
        array[j] = value


@compiled
def copy(array: Array, values: Array) -> None:
    """Set every element to that of another array."""
    for j in range(array.shape[0]):
        array[j] = values[j]
