"""Rows as compiled kernels take them: one C-contiguous array, writable, of native numbers."""

import ctypes
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT16, FloatFormat
from truenorm.kernels.fused.compiled.ground import GROUP
from truenorm.kernels.rows import Rows
from truenorm.threads import for_each_block, thread_count

__all__ = [
    "BLOCK",
    "LONG",
    "Source",
    "Target",
    "blocks_within",
    "held",
    "in_blocks",
    "in_ranges",
    "row_ranges",
    "threads_for",
]

BLOCK = 2**18
"""Elements of a block: what one call of a kernel works on."""

LONG = 2**15
"""Elements of a row from which on it is not kept together with others."""


def held(stored: NDArray[Any], target: FloatFormat) -> NDArray[Any]:
    """Return the same memory as kernels of this backend take it."""
    return stored.view(np.int16) if target is FLOAT16 else stored


class Source:
    """Rows to be read: the memory itself where it lies like that, else copies of blocks."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        memory = rows.memory
        self._memory = None if memory is None else held(_writable(memory), rows.target)

    def block(self, start: int, stop: int) -> NDArray[Any]:
        """Return some rows."""
        if self._memory is not None:
            return self._memory[start:stop]
        return self.copy(np.arange(start, stop))

    def block_beside(self, found: NDArray[Any], start: int, stop: int) -> NDArray[Any]:
        """Return some rows apart from the results, which are written before all is read."""
        given = self.block(start, stop)
        return given.copy() if np.may_share_memory(given, found) else given

    def copy(self, indices: NDArray[np.intp]) -> NDArray[Any]:
        """Return copies of some rows."""
        if self._memory is not None:
            return self._memory[indices]
        parts = [self._rows.read(i, i + 1) for i in indices.tolist()]
        gathered = np.concatenate(parts) if parts else np.empty((0, self._rows.size))
        native = gathered.astype(gathered.dtype.newbyteorder("="), order="C")
        return held(native, self._rows.target)


class Target:
    """Rows to be written: in place where memory allows it, else by way of a copy."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        memory = rows.memory
        self._memory = None if memory is None else held(memory, rows.target)

    def block(self, start: int, stop: int) -> NDArray[Any]:
        """Return an array to write some rows to; `done` must follow."""
        if self._memory is not None:
            return self._memory[start:stop]
        stored = self._rows.read(start, start + 1).dtype.newbyteorder("=")
        return held(np.empty((stop - start, self._rows.size), stored), self._rows.target)

    def done(self, start: int, stop: int, block: NDArray[Any]) -> None:
        """Put a block that was written where it belongs."""
        if self._memory is None:
            kind = self._rows.read(start, start + 1).dtype.newbyteorder("=")
            self._rows.write(start, stop, block.view(kind))


def _writable(memory: NDArray[Any]) -> NDArray[Any]:
    """Return the same memory as an array that could be written to, though no kernel does.

    To Numba a read-only array is of another type, for which it would compile everything again.
    """
    if memory.flags.writeable:
        return memory
    there = (ctypes.c_char * memory.nbytes).from_address(memory.ctypes.data)
    return np.ndarray(memory.shape, memory.dtype, buffer=memoryview(there))


def _rows_together(size: int) -> int:
    """Return how many rows are not parted: a group, but long rows are work enough alone."""
    return GROUP if size < LONG else 1


def row_ranges(count: int, size: int, parts: int) -> list[tuple[int, int]]:
    """Cut rows into at most so many ranges, about equal."""
    together = _rows_together(size)
    groups = -(-count // together)
    parts = max(1, min(parts, groups))
    edges = [min(count, together * (groups * k // parts)) for k in range(parts + 1)]
    return list(pairwise(edges))


def blocks_within(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    """Cut a range of rows into blocks of about BLOCK elements."""
    together = _rows_together(size)
    step = max(1, BLOCK // (together * size)) * together
    return [(k, min(k + step, stop)) for k in range(start, stop, step)]


SMALL = 2**16
"""Elements below which a call stays on its own thread: another takes 50 us to wake up."""


def threads_for(x: Rows, asked: int | None) -> int:
    """Return how many threads a call uses."""
    return 1 if x.count * x.size < SMALL else thread_count(asked)


def in_blocks(
    work: Callable[[int, int], None], blocks: list[tuple[int, int]], threads: int
) -> None:
    """Do work on every block, without NumPy's warnings: what it is told holds for one thread."""
    if threads == 1 or len(blocks) == 1:
        for start, stop in blocks:
            work(start, stop)
        return

    def quiet(start: int, stop: int) -> None:
        with np.errstate(all="ignore"):
            work(start, stop)

    for_each_block(quiet, blocks, threads)


def in_ranges(work: Callable[[int], None], ranges: list[tuple[int, int]], threads: int) -> None:
    """Do work on every range, which gets its number."""
    in_blocks(lambda index, _: work(index), [(k, k + 1) for k in range(len(ranges))], threads)
