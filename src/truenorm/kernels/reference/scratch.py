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
        kept = self._arrays.get(name)
        if kept is None or kept.size < values.size:
            kept = self._arrays[name] = np.empty(values.size)
        return kept[: values.size].reshape(values.shape)
