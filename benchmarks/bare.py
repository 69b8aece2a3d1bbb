"""The bare machine: a copy and a triad in C, driven the way the kernels are.

``python -m benchmarks.bare`` compares them with the same loops compiled by Numba.
"""
# ruff: noqa: T201
# A command prints its result.

import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import heading, machine
from truenorm.tools.machine import usable_cores
from truenorm.tools.stopwatch import Stopwatch
from truenorm.tools.text import table

__all__ = ["Bare"]

# To wake a thread takes longer than it takes to move so many elements.
FEWEST_ELEMENTS = 2**15
SOURCE = Path(__file__).with_name("bare.c")
COMPILE = ("cc", "-O3", "-march=native", "-shared", "-fPIC")
SHAPES = ((256, 1024), (2048, 1024), (2048, 4096), (8192, 4096))
TURNS = 15
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
        return partial(self.drive, kernel, addresses, arrays[0].size)

    def drive(
        self, kernel: Kernel, arguments: list[Any], size: int, fewest: int = FEWEST_ELEMENTS
    ) -> None:
        """Run a kernel over a range in parts; the calling thread takes one too."""
        parts = max(1, min(self._threads, size // fewest))
        (start, stop), *rest = pairwise(size * k // parts for k in range(parts + 1))
        others = [self._pool.submit(kernel, *arguments, *part) for part in rest]
        kernel(*arguments, start, stop)
        for other in others:
            other.result()


def _copy_rows(x: Array, out: Array, start: int, stop: int) -> None:
    for i in range(start, stop):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j]


def _triad_rows(x: Array, dy: Array, out: Array, start: int, stop: int) -> None:
    for i in range(start, stop):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] + dy[i, j]


def _by_numba(bare: Bare, x: Array, dy: Array, out: Array) -> dict[str, Callable[[], object]]:
    """Return the same loops compiled by Numba, on ranges of rows."""
    compiled: Callable[..., Any] = import_module("numba").njit(nogil=True)
    rows = partial(bare.drive, fewest=FEWEST_ELEMENTS // x.shape[1])
    return {
        "copy, Numba": partial(rows, compiled(_copy_rows), [x, out], len(x)),
        "triad, Numba": partial(rows, compiled(_triad_rows), [x, dy, out], len(x)),
    }


def main() -> int:
    """Print the times of C beside those of Numba, in turns."""
    threads = usable_cores()
    print(heading(machine(threads, packages=("numpy", "numba"))))
    bare, lines = Bare(threads), []
    for shape in SHAPES:
        x, dy, out = (np.ones(shape, np.float32) for _ in range(3))
        watch = Stopwatch()
        contestants = {**bare.contestants(x, dy, out), **_by_numba(bare, x, dy, out)}
        for run in contestants.values():
            run()  # the first call of Numba compiles
        for _ in range(TURNS):
            watch.go_round(contestants, max(1, 2**22 // x.size))
        for name in ("copy", "triad"):
            ratio = watch.ratio(name, f"{name}, Numba")
            lines.append([str(shape), name, f"{watch.p50(name) * 1e3:.3f}", f"{ratio:.2f}"])
    print(table(["shape, float32", "", "C, p50 in ms", "C / Numba"], lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
