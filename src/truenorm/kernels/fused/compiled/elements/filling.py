"""Scratch space, and filling it: as loops, since Numba takes seconds to compile `a[:] = b`."""

from typing import Any

from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Array, Element, Flags

__all__ = ["any_of", "copy", "fill"]


@compiled
def any_of(flags: Flags) -> Any:
    """Return whether a flag is set."""
    found = False
    for j in range(flags.shape[0]):
        found |= flags[j]
    return found


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
