"""Fast mode, backward: the sums along a row, over runs of eight terms in float32.

A run takes an eighth of the columns at a time, so that all of it is vectors of float32; the sums
of runs are added in float64, in any order.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode_single
from truenorm.kernels.fused.compiled.elements.vectors import (
    add_in_any_order,
    arrays_are_apart,
    prefer_wide_vectors,
)
from truenorm.kernels.fused.compiled.rows.sums import pairwise
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Centred, Coded, Element, Numbers, Singles

__all__ = ["AT_ONCE", "RUNS", "add_single_sums"]

AT_ONCE = 1024
"""Columns that backward takes at a time."""

EIGHTH = AT_ONCE // 8
RUNS = 4 * EIGHTH
"""Sums of runs, for all four sums."""


@compiled
def add_single_sums(
    x: Coded,
    dy: Coded,
    gamma: Coded,
    high: Element,
    low: Element,
    centred: Centred,
    runs: Singles,
    sums: Numbers,
) -> None:
    """Add c, g, g*c and g*g over at most AT_ONCE columns to the sums of a row.

    Not c but c*c if rows are not centred.
    """
    width = x.shape[0] // 8
    _sum_runs(x, dy, gamma, high, low, centred, width, runs)
    c, g, gc, gg = _add_runs(runs, width)
    for j in range(8 * width, x.shape[0]):
        centre = (decode_single(x[j]) - high) - low
        slope = decode_single(dy[j]) * decode_single(gamma[j])
        wide = np.float64(centre)
        c += wide if centred is not None else wide * wide
        g += np.float64(slope)
        gc += np.float64(slope) * wide
        gg += np.float64(slope) * np.float64(slope)
    sums[0] += c
    sums[1] += g
    sums[2] += gc
    sums[3] += gg


@compiled(fastmath={"contract"})
def _sum_runs(
    x: Coded,
    dy: Coded,
    gamma: Coded,
    high: Element,
    low: Element,
    centred: Centred,
    width: int,
    runs: Singles,
) -> None:
    """Write the sums of runs, of which each takes every width-th column."""
    prefer_wide_vectors()
    arrays_are_apart()
    for j in range(width):
        c0 = (decode_single(x[j]) - high) - low
        c1 = (decode_single(x[j + width]) - high) - low
        c2 = (decode_single(x[j + 2 * width]) - high) - low
        c3 = (decode_single(x[j + 3 * width]) - high) - low
        c4 = (decode_single(x[j + 4 * width]) - high) - low
        c5 = (decode_single(x[j + 5 * width]) - high) - low
        c6 = (decode_single(x[j + 6 * width]) - high) - low
        c7 = (decode_single(x[j + 7 * width]) - high) - low
        g0 = decode_single(dy[j]) * decode_single(gamma[j])
        g1 = decode_single(dy[j + width]) * decode_single(gamma[j + width])
        g2 = decode_single(dy[j + 2 * width]) * decode_single(gamma[j + 2 * width])
        g3 = decode_single(dy[j + 3 * width]) * decode_single(gamma[j + 3 * width])
        g4 = decode_single(dy[j + 4 * width]) * decode_single(gamma[j + 4 * width])
        g5 = decode_single(dy[j + 5 * width]) * decode_single(gamma[j + 5 * width])
        g6 = decode_single(dy[j + 6 * width]) * decode_single(gamma[j + 6 * width])
        g7 = decode_single(dy[j + 7 * width]) * decode_single(gamma[j + 7 * width])
        if centred is None:
            runs[j] = pairwise(
                c0 * c0, c1 * c1, c2 * c2, c3 * c3, c4 * c4, c5 * c5, c6 * c6, c7 * c7
            )
        else:
            runs[j] = pairwise(c0, c1, c2, c3, c4, c5, c6, c7)
        runs[j + EIGHTH] = pairwise(g0, g1, g2, g3, g4, g5, g6, g7)
        runs[j + 2 * EIGHTH] = pairwise(
            g0 * c0, g1 * c1, g2 * c2, g3 * c3, g4 * c4, g5 * c5, g6 * c6, g7 * c7
        )
        runs[j + 3 * EIGHTH] = pairwise(
            g0 * g0, g1 * g1, g2 * g2, g3 * g3, g4 * g4, g5 * g5, g6 * g6, g7 * g7
        )


@compiled
def _add_runs(runs: Singles, width: int) -> Any:
    """Return the four sums of runs."""
    prefer_wide_vectors()
    c, g, gc, gg = 0.0, 0.0, 0.0, 0.0
    for j in range(width):
        c = add_in_any_order(c, np.float64(runs[j]))
        g = add_in_any_order(g, np.float64(runs[j + EIGHTH]))
        gc = add_in_any_order(gc, np.float64(runs[j + 2 * EIGHTH]))
        gg = add_in_any_order(gg, np.float64(runs[j + 3 * EIGHTH]))
    return c, g, gc, gg
