"""What the levels have in common: all rows on one thread, in blocks, with scratch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.call import Call
from truenorm.kernels.rows import Range

__all__ = ["BLOCK", "PAIR_BLOCK", "Scratch", "Sweep"]

BLOCK = 2**16
"""Elements of a block: its six temporaries in float64 take 3 MB."""

PAIR_BLOCK = 2**13
"""The same for double-double, which has many temporaries."""


class Scratch:
    """Named float64 arrays, as large as the largest that was asked for under a name.

    They are used again for every block: allocating them costs as much as filling them.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[np.float64]] = {}

    def like(self, values: NDArray[Any], name: str) -> NDArray[np.float64]:
        """Return an array of the shape of the values, with whatever it held before."""
        return self._first(values.size, name).reshape(values.shape)

    def several_like(self, values: NDArray[Any], count: int, name: str) -> NDArray[np.float64]:
        """Return so many of them, one after the other in memory."""
        return self._first(count * values.size, name).reshape(count, *values.shape)

    def _first(self, count: int, name: str) -> NDArray[np.float64]:
        """Return so many numbers of an array, which grows as it must."""
        kept = self._arrays.get(name)
        if kept is None or kept.size < count:
            kept = self._arrays[name] = np.empty(count)
        return kept[:count]


class Sweep:
    """All rows, in blocks of so many elements."""

    threads = 1

    def __init__(self, call: Call, elements: int) -> None:
        self.call = call
        self.parts: list[Range] = [(0, call.count)]
        self.rows_at_once = max(1, elements // call.size)
        self.scratch = Scratch()
