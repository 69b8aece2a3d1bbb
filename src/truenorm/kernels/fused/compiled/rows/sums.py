"""Sums in float64 of known depth, written so that a compiler can run them in vectors.

The error of a sum is at most depth*u*sum|terms|, where depth is the largest number of additions
any term goes through. A row is cut into segments of RUN*LANES terms. Lane l of a segment adds the
terms l, l + LANES, ..., two and two; then halves of the segments are added until one is left, and
then halves of its lanes. No step needs a licence to reorder anything: the order is as written.

The lanes of several sums lie side by side in one array, which the compiler can tell from others.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Numbers

__all__ = [
    "LANES",
    "SEGMENT",
    "depth_of_sum",
    "fold",
    "pairwise",
    "segments_of",
    "space_of_sums",
]

LANES = 16
RUN = 8
SEGMENT = LANES * RUN


@compiled
def segments_of(size: int) -> Any:
    """Return into how many segments a row is cut."""
    return (size + SEGMENT - 1) // SEGMENT


@compiled
def space_of_sums(size: int, width: int) -> Any:
    """Return how many numbers of scratch the sums of a row take: partial ones, a last segment."""
    return segments_of(size) * width + 2 * SEGMENT


@compiled
def depth_of_sum(size: int) -> Any:
    """Return the depth of a sum over a row: in a run 3, in its lanes 4, and over its segments."""
    return np.ceil(np.log2(min(size, SEGMENT))) + np.ceil(np.log2(segments_of(size)))


@compiled
def pairwise(
    t0: float, t1: float, t2: float, t3: float, t4: float, t5: float, t6: float, t7: float
) -> Any:
    """Return the sum of a run. It is spelt out since no loop over a run makes good vectors."""
    return ((t0 + t1) + (t2 + t3)) + ((t4 + t5) + (t6 + t7))


@compiled
def fold(partial: Numbers, segments: int, width: int) -> None:
    """Add up segments of some width, a multiple of LANES; each sum ends in its first lane."""
    while segments > 1:
        half = (segments + 1) // 2
        low, high = partial[: (segments - half) * width], partial[half * width : segments * width]
        for k in range(low.shape[0]):
            low[k] += high[k]
        segments = half
    for k in range(0, width, LANES):
        # Spelt out as well: what is stored first and then loaded has to wait.
        partial[k] = pairwise(
            partial[k] + partial[k + 8],
            partial[k + 1] + partial[k + 9],
            partial[k + 2] + partial[k + 10],
            partial[k + 3] + partial[k + 11],
            partial[k + 4] + partial[k + 12],
            partial[k + 5] + partial[k + 13],
            partial[k + 6] + partial[k + 14],
            partial[k + 7] + partial[k + 15],
        )
