"""The bare machine: a copy and a triad in C, driven the way the kernels are."""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

__all__ = ["Bare"]

# To wake a thread takes longer than it takes to move so many elements.
FEWEST_ELEMENTS = 2**15
SOURCE = Path(__file__).with_name("bare.c")
COMPILE = ("cc", "-O3", "-march=native", "-shared", "-fPIC")
WIDTHS = (16, 32, 64)
"""Bits of a number that a triad is compiled for."""
Array = NDArray[Any]
Kernel = Callable[..., object]


@cache
def _library() -> ctypes.CDLL:
    """Compile the loops with the C compiler of this machine; calls release Python's lock."""
    if shutil.which(COMPILE[0]) is None:
        raise RuntimeError("the bare machine needs a C compiler named cc: apt-get install gcc")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "bare.so"
        subprocess.run([*COMPILE, str(SOURCE), "-o", str(library)], check=True)
        found = ctypes.CDLL(str(library))
    ends = (ctypes.c_size_t,) * 2
    found.copy_bytes.argtypes = ((ctypes.c_void_p,) * 2) + ends
    for width in WIDTHS:
        getattr(found, f"triad_{width}").argtypes = ((ctypes.c_void_p,) * 3) + ends
    return found


class Bare:
    """Copy and triad on ranges of elements, one for each thread."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(max(1, threads - 1))  # the caller is the last of them

    def contestants(self, x: Array, dy: Array, out: Array) -> dict[str, Callable[[], object]]:
        """Return both over these arrays, which must be C-contiguous."""
        width = x.itemsize
        triad = getattr(_library(), f"triad_{8 * width}")
        return {
            "copy": self._driven(partial(self._copy, width), x, out),
            "triad": self._driven(triad, x, dy, out),
        }

    @staticmethod
    def _copy(width: int, x: int, out: int, start: int, stop: int) -> None:
        """Copy a range of elements."""
        _library().copy_bytes(x, out, width * start, width * stop)

    def _driven(self, kernel: Kernel, *arrays: Array) -> Callable[[], object]:
        addresses = [array.ctypes.data for array in arrays]
        return partial(self._drive, kernel, addresses, arrays[0].size)

    def _drive(self, kernel: Kernel, arguments: list[Any], size: int) -> None:
        """Run a kernel over a range in parts; the calling thread takes one too."""
        parts = max(1, min(self._threads, size // FEWEST_ELEMENTS))
        (start, stop), *rest = pairwise(size * k // parts for k in range(parts + 1))
        others = [self._pool.submit(kernel, *arguments, *part) for part in rest]
        kernel(*arguments, start, stop)
        for other in others:
            other.result()
