"""The bare machine: a copy and a triad, driven the way the kernels are."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bare"]

# To wake a thread takes longer than it takes to move so many elements.
FEWEST_ELEMENTS = 2**15
Array = NDArray[Any]


def _copy_rows(x: Array, out: Array, start: int, stop: int) -> None:
    """Read one array and write one, as forward must."""
    for i in range(start, stop):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j]


def _triad_rows(x: Array, dy: Array, out: Array, start: int, stop: int) -> None:
    """Read two arrays and write one, as backward must."""
    for i in range(start, stop):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] + dy[i, j]


class Bare:
    """Copy and triad on row ranges, one for each thread.

    Numba compiles them once for each type. It knows neither float16 nor bfloat16, whose bits are
    moved and added as integers: the traffic is the same.
    """

    def __init__(self, threads: int) -> None:
        compiled: Callable[..., Any] = import_module("numba").njit(nogil=True)
        self._copy, self._triad = compiled(_copy_rows), compiled(_triad_rows)
        self._threads = threads
        self._pool = ThreadPoolExecutor(max(1, threads - 1))  # the caller is the last of them

    def contestants(self, x: Array, dy: Array, out: Array) -> dict[str, Callable[[], object]]:
        """Return both over these arrays."""
        x, dy, out = (_as_rows(array) for array in (x, dy, out))
        return {
            "copy": partial(self._drive, self._copy, x, out),
            "triad": partial(self._drive, self._triad, x, dy, out),
        }

    def _drive(self, kernel: Callable[..., object], *arrays: Array) -> None:
        """Run a kernel over all rows; the calling thread takes a share too."""
        rows = len(arrays[0])
        parts = max(1, min(self._threads, rows, arrays[0].size // FEWEST_ELEMENTS))
        (start, stop), *rest = pairwise(rows * k // parts for k in range(parts + 1))
        others = [self._pool.submit(kernel, *arrays, *part) for part in rest]
        kernel(*arrays, start, stop)
        for other in others:
            other.result()


def _as_rows(array: Array) -> Array:
    """Return an array as a table of rows, of a type that Numba knows."""
    table = array.reshape(-1, array.shape[-1])
    return table.view(np.uint16) if array.itemsize == 2 else table
