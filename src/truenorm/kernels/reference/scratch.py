"""Arrays that are used again for every block: allocating them costs as much as filling them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scratch"]


class Scratch:
    """Named float64 arrays, as large as the largest that was asked for under a name."""

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
