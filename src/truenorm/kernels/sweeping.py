"""Going over all rows: in parts, on several threads, a block at a time."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from truenorm.kernels.backend import ColumnSums, ColumnSweep, Mergeable, Sweep
from truenorm.kernels.rows import Source, blocks_of
from truenorm.threads import for_each_block

__all__ = ["SweepsLike", "in_parts", "merged", "summed"]

Sums = TypeVar("Sums", bound=Mergeable)


class SweepsLike:
    """Goes over the rows in the way of another sweep."""

    def __init__(self, other: Sweep) -> None:
        self.threads, self.parts = other.threads, other.parts
        self.rows_at_once = other.rows_at_once


def in_parts(work: Callable[[int], None], parts: int, threads: int) -> None:
    """Do work for every part, which gets its number.

    NumPy is told to be quiet by each thread: what it was told holds for the one that called.
    """
    if threads == 1 or parts == 1:
        for k in range(parts):
            work(k)
        return

    def quiet(k: int, _: int) -> None:
        with np.errstate(all="ignore"):
            work(k)

    for_each_block(quiet, [(k, k + 1) for k in range(parts)], threads)


def merged(shares: list[Sums]) -> Sums:
    """Add up sums over parts in halves: each goes through few additions, always the same."""
    while (count := len(shares)) > 1:
        half = (count + 1) // 2
        for share, other in zip(shares, shares[half:], strict=False):
            share.merge(other)
        shares = shares[:half]
    return shares[0]


def summed(sweep: ColumnSweep[Any], dy: Source, x: Source) -> ColumnSums:
    """Sweep over all rows, and return the sums of the columns."""
    shares = [sweep.sums() for _ in sweep.parts]

    def work(k: int) -> None:
        for start, stop in blocks_of(sweep.parts[k], sweep.rows_at_once):
            sweep.add(dy.block(start, stop), x.block(start, stop), shares[k])

    in_parts(work, len(shares), sweep.threads)
    total: ColumnSums = merged(shares)
    return total
