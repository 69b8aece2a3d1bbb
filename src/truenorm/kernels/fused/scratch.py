"""Scratch space of the kernels: how much, and where it begins."""

import threading

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.fused.compiled.narrow.forward import FORWARD
from truenorm.kernels.fused.compiled.pairs.rows import SCRATCH
from truenorm.kernels.fused.compiled.small import SMALL

__all__ = ["aligned", "scratch", "scratch_of_pairs", "scratch_of_terms"]

LINE = 8
"""How many float64 numbers a cache line holds."""


def aligned(count: int) -> NDArray[np.float64]:
    """Return float64 numbers that begin with a cache line: vectors that straddle two are slow."""
    numbers = np.empty(count + LINE)
    address = numbers.__array_interface__["data"][0]
    skipped = -(address // numbers.itemsize) % LINE
    return numbers[skipped : skipped + count]


class _Scratch(threading.local):
    """Of each thread: what the kernels of levels 1 and of fast mode need, whatever the size."""

    def __init__(self) -> None:
        self.numbers = aligned(max(FORWARD, SMALL))


_scratch = _Scratch()


def scratch() -> NDArray[np.float64]:
    """Return the scratch of this thread, for one call of a kernel: nothing stays in it."""
    return _scratch.numbers


def scratch_of_pairs(size: int) -> int:
    """Return how much scratch the kernels of level 2 need for rows of a size."""
    return SCRATCH + 3 * size


def scratch_of_terms(size: int) -> int:
    """Return how much scratch the terms of a row of a size need."""
    return SCRATCH + 4 * size
