"""Sums in float64 of known depth, written so that a compiler can run them in vectors.

The error of a sum is at most depth*u*sum|terms|, where depth is the largest number of additions
any term goes through. A row is taken COLUMNS terms at a time, and those in segments of RUN*LANES.
Lane l of a segment adds the terms l, l + LANES, ..., two and two; then halves of the segments are
added until one is left. That is added to the lanes of the row by TwoSum, which loses nothing: what
is rounded off has lanes of its own. At last halves of the lanes are added. No step needs a licence
to reorder anything: the order is as written.

The lanes of several sums lie side by side in one array, which the compiler can tell from others.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.vectors import arrays_are_apart, prefer_wide_vectors
from truenorm.kernels.fused.compiled.pairs.arithmetic import two_sum
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import COLUMNS, Numbers

__all__ = [
    "LANES",
    "SEGMENT",
    "SPACE",
    "add_segments",
    "add_to_lanes",
    "clear_last_segment",
    "depth_of_sum",
    "pair_of_lanes",
    "pairwise",
    "total_of_lanes",
]

LANES = 16
RUN = 8
SEGMENT = LANES * RUN

SPACE = 4 * COLUMNS // RUN + 2 * SEGMENT
"""Scratch for up to four sums over COLUMNS terms, and for a last segment that is not full."""


@compiled
def depth_of_sum(size: int) -> Any:
    """Return the depth of a sum over a row: within COLUMNS terms, and for what was rounded off."""
    return np.ceil(np.log2(min(size, COLUMNS))) + (1 if size > COLUMNS else 0)


@compiled
def pairwise(
    t0: float, t1: float, t2: float, t3: float, t4: float, t5: float, t6: float, t7: float
) -> Any:
    """Return the sum of a run. It is spelt out since no loop over a run makes good vectors."""
    return ((t0 + t1) + (t2 + t3)) + ((t4 + t5) + (t6 + t7))


@compiled
def clear_last_segment(partial: Numbers) -> None:
    """Put zeros where the terms of a last segment that is not full will be.

    Once for many rows of a size: behind the terms the zeros stay.
    """
    for k in range(SPACE - 2 * SEGMENT, SPACE):
        partial[k] = 0.0


@compiled
def add_to_lanes(lanes: Numbers, partial: Numbers, terms: int, width: int, first: bool) -> None:
    """Add up the segments of some terms, which are used up, and add that to the lanes of a row.

    Or put it there, if those terms are the first. Behind the lanes, as many again hold what was
    rounded off, if there is more than that.
    """
    prefer_wide_vectors()
    segments = (terms + SEGMENT - 1) // SEGMENT
    while segments > 1:
        half = (segments + 1) // 2
        low, high = partial[: (segments - half) * width], partial[half * width : segments * width]
        for k in range(low.shape[0]):
            low[k] += high[k]
        segments = half
    if first:
        for k in range(width):
            lanes[k] = partial[k]
            lanes[k + width] = 0.0
    else:
        _add_exactly(lanes, partial, width)


@compiled
def add_segments(lanes: Numbers, partial: Numbers, terms: int, width: int) -> None:
    """Add each segment of some terms to the lanes of a row: nothing but runs is rounded."""
    for k in range((terms + SEGMENT - 1) // SEGMENT):
        _add_exactly(lanes, partial[k * width :], width)


@compiled
def _add_exactly(lanes: Numbers, partial: Numbers, width: int) -> None:
    """Add to the lanes by TwoSum."""
    prefer_wide_vectors()
    for k in range(width):
        s = lanes[k] + partial[k]
        t = s - lanes[k]
        lanes[k + width] += (lanes[k] - (s - t)) + (partial[k] - t)
        lanes[k] = s


@compiled
def total_of_lanes(lanes: Numbers, start: int, width: int, rounded_off: bool) -> Any:
    """Return the sum over a row whose lanes start there, with what was rounded off if there is."""
    total = _halves(lanes[start : start + LANES])
    if rounded_off:
        total += _halves(lanes[start + width : start + width + LANES])
    return total


@compiled
def pair_of_lanes(lanes: Numbers, first: int, width: int) -> Any:
    """Return the sum whose lanes begin at `first` as a pair; they are used up."""
    high, low = lanes[first : first + LANES], lanes[first + width : first + width + LANES]
    _fold(high[:8], high[8:], low[:8], low[8:])
    _fold(high[:4], high[4:8], low[:4], low[4:8])
    s, e = two_sum(high[0], high[2])
    t, f = two_sum(high[1], high[3])
    total, g = two_sum(s, t)
    return two_sum(total, ((low[0] + low[2]) + (low[1] + low[3])) + ((e + f) + g))


@compiled
def _fold(high: Numbers, others: Numbers, low: Numbers, lower: Numbers) -> None:
    """Add lanes to others: the high parts by TwoSum, what is rounded off to the low parts."""
    prefer_wide_vectors()
    arrays_are_apart()
    for k in range(high.shape[0]):
        s, e = two_sum(high[k], others[k])
        high[k] = s
        low[k] += lower[k] + e


@compiled
def _halves(lanes: Numbers) -> Any:
    # Spelt out as well: what is stored first and then loaded has to wait.
    return pairwise(
        lanes[0] + lanes[8],
        lanes[1] + lanes[9],
        lanes[2] + lanes[10],
        lanes[3] + lanes[11],
        lanes[4] + lanes[12],
        lanes[5] + lanes[13],
        lanes[6] + lanes[14],
        lanes[7] + lanes[15],
    )
