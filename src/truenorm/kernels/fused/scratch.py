"""Scratch space of the kernels: how much, and where it begins."""

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.fused.compiled.narrow.backward import NUMBERS
from truenorm.kernels.fused.compiled.pairs.rows import SCRATCH
from truenorm.kernels.fused.compiled.rows import row_sums, statistics
from truenorm.kernels.fused.compiled.rows.sums import space_of_sums
from truenorm.kernels.fused.compiled.single.backward import FOUR
from truenorm.kernels.fused.compiled.single.writing import SINGLES
from truenorm.kernels.ground import COLUMNS, GROUP, SHARES

__all__ = [
    "aligned",
    "scratch_of_backward",
    "scratch_of_fast_backward",
    "scratch_of_forward",
    "scratch_of_pairs",
]

LINE = 8
"""How many float64 numbers a cache line holds."""


def aligned(count: int) -> NDArray[np.float64]:
    """Return float64 numbers that begin with a cache line: vectors that straddle two are slow."""
    numbers = np.empty(count + LINE)
    skipped = -(numbers.ctypes.data // numbers.itemsize) % LINE
    return numbers[skipped : skipped + count]


def scratch_of_forward(size: int) -> int:
    """Return how much scratch forward, correct or fast, needs for rows of a size."""
    return 2 * GROUP + int(space_of_sums(size, statistics.WIDTH))


def scratch_of_backward(size: int) -> int:
    """Return how much scratch correct backward needs for rows of a size."""
    return SHARES * COLUMNS + GROUP * NUMBERS + int(space_of_sums(size, row_sums.WIDTH))


def scratch_of_fast_backward(size: int) -> int:
    """Return how much scratch fast backward needs for rows of a size."""
    sums = int(space_of_sums(size, row_sums.WIDTH))
    return FOUR * SINGLES + SHARES * COLUMNS + NUMBERS + sums


def scratch_of_pairs(size: int) -> int:
    """Return how much scratch the kernels of level 2 need for rows of a size."""
    return SCRATCH + 3 * size
