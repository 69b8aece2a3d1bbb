"""Rows as compiled kernels take them, and how all rows are parted among threads."""

from itertools import pairwise

import numpy as np

from truenorm.exact import FLOAT16, FloatFormat
from truenorm.kernels.ground import GROUP
from truenorm.kernels.rows import Range
from truenorm.kernels.storage import Stored, writable_view
from truenorm.threads import thread_count

__all__ = ["coded", "row_ranges", "rows_of_block", "rows_together", "threads_for"]

BLOCK = 2**18
"""Elements of a block: what one call of a kernel works on."""

LONG = 2**15
"""Elements of a row from which on it is not kept together with others."""

SMALL = 2**16
"""Elements below which a call stays on its own thread: another takes 10 us or more to wake up."""

Coded = Stored
"""Stored numbers as compiled kernels take them: those of float16 are the int16 of their bits."""


def coded(stored: Stored, target: FloatFormat) -> Coded:
    """Return the same memory as compiled kernels take it."""
    stored = writable_view(stored)
    return stored.view(np.int16) if target is FLOAT16 else stored


def rows_together(size: int) -> int:
    """Return how many rows are not parted: a group, but long rows are work enough alone."""
    return GROUP if size < LONG else 1


def row_ranges(count: int, size: int, parts: int) -> list[Range]:
    """Cut rows into at most so many ranges, about equal."""
    together = rows_together(size)
    groups = -(-count // together)
    parts = max(1, min(parts, groups))
    edges = [min(count, together * (groups * k // parts)) for k in range(parts + 1)]
    return list(pairwise(edges))


def rows_of_block(size: int) -> int:
    """Return how many rows make a block of about BLOCK elements."""
    together = rows_together(size)
    return max(1, BLOCK // (together * size)) * together


def threads_for(elements: int, asked: int | None) -> int:
    """Return how many threads a call on so many elements uses."""
    return 1 if elements < SMALL else thread_count(asked)
