"""Backward: the sums along a row, in float64."""

from typing import Any

from truenorm.kernels.fused.compiled.elements.encoding import decode
from truenorm.kernels.fused.compiled.elements.vectors import prefer_wide_vectors
from truenorm.kernels.fused.compiled.rows.sums import (
    LANES,
    SEGMENT,
    SPACE,
    add_to_lanes,
    pairwise,
    total_of_lanes,
)
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Centred, Coded, Numbers

__all__ = ["WIDTH", "add_row_sums", "means_of", "put_row_sums"]

WIDTH = 4 * LANES
"""Of the lanes of all four sums."""


@compiled(fastmath={"contract"})
def add_row_sums(
    x: Coded,
    dy: Coded,
    gamma: Numbers,
    near: float,
    low: float,
    centred: Centred,
    first: bool,
    lanes: Numbers,
    partial: Numbers,
) -> None:
    """Add c, g, g*c and g*g over at most COLUMNS elements to the lanes.

    Not c but c*c if rows are not centred.
    """
    put_row_sums(x, dy, gamma, near, low, centred, partial)
    add_to_lanes(lanes, partial, x.shape[0], WIDTH, first)


@compiled(fastmath={"contract"})
def put_row_sums(
    x: Coded,
    dy: Coded,
    gamma: Numbers,
    near: float,
    low: float,
    centred: Centred,
    partial: Numbers,
) -> None:
    """Store the same sums over each segment."""
    prefer_wide_vectors()
    size = x.shape[0]
    whole = size // SEGMENT
    for k in range(whole):
        px = x[k * SEGMENT : (k + 1) * SEGMENT]
        pdy = dy[k * SEGMENT : (k + 1) * SEGMENT]
        pgamma = gamma[k * SEGMENT : (k + 1) * SEGMENT]
        sums = partial[k * WIDTH : (k + 1) * WIDTH]
        for lane in range(LANES):
            c0 = (decode(px[lane]) - near) - low
            c1 = (decode(px[lane + LANES]) - near) - low
            c2 = (decode(px[lane + 2 * LANES]) - near) - low
            c3 = (decode(px[lane + 3 * LANES]) - near) - low
            c4 = (decode(px[lane + 4 * LANES]) - near) - low
            c5 = (decode(px[lane + 5 * LANES]) - near) - low
            c6 = (decode(px[lane + 6 * LANES]) - near) - low
            c7 = (decode(px[lane + 7 * LANES]) - near) - low
            g0 = decode(pdy[lane]) * pgamma[lane]
            g1 = decode(pdy[lane + LANES]) * pgamma[lane + LANES]
            g2 = decode(pdy[lane + 2 * LANES]) * pgamma[lane + 2 * LANES]
            g3 = decode(pdy[lane + 3 * LANES]) * pgamma[lane + 3 * LANES]
            g4 = decode(pdy[lane + 4 * LANES]) * pgamma[lane + 4 * LANES]
            g5 = decode(pdy[lane + 5 * LANES]) * pgamma[lane + 5 * LANES]
            g6 = decode(pdy[lane + 6 * LANES]) * pgamma[lane + 6 * LANES]
            g7 = decode(pdy[lane + 7 * LANES]) * pgamma[lane + 7 * LANES]
            _put_sums(sums, lane, c0, c1, c2, c3, c4, c5, c6, c7, g0, g1, g2, g3, g4, g5, g6, g7)
            if centred is None:
                _put_squares(sums, lane, c0, c1, c2, c3, c4, c5, c6, c7)
    if size > whole * SEGMENT:
        left = whole * SEGMENT
        rest = partial[SPACE - 2 * SEGMENT : SPACE]
        sums = partial[whole * WIDTH :]
        _last_sums(x[left:], dy[left:], gamma[left:], near, low, centred, sums, rest)


@compiled
def means_of(lanes: Numbers, size: int, rounded_off: bool) -> Any:
    """Return the means of c, g, g*c and g*g along a row: see `total_of_lanes`."""
    return (
        total_of_lanes(lanes, 0, WIDTH, rounded_off) / size,
        total_of_lanes(lanes, LANES, WIDTH, rounded_off) / size,
        total_of_lanes(lanes, 2 * LANES, WIDTH, rounded_off) / size,
        total_of_lanes(lanes, 3 * LANES, WIDTH, rounded_off) / size,
    )


@compiled
def _last_sums(
    x: Coded,
    dy: Coded,
    gamma: Numbers,
    near: float,
    low: float,
    centred: Centred,
    sums: Numbers,
    rest: Numbers,
) -> None:
    """Add up the runs of a segment that is not full."""
    c, g = rest[:SEGMENT], rest[SEGMENT:]
    for j in range(x.shape[0]):
        c[j] = (decode(x[j]) - near) - low
        g[j] = decode(dy[j]) * gamma[j]
    for k in range(LANES):
        c0, c1, c2, c3 = c[k], c[k + LANES], c[k + 2 * LANES], c[k + 3 * LANES]
        c4, c5, c6, c7 = c[k + 4 * LANES], c[k + 5 * LANES], c[k + 6 * LANES], c[k + 7 * LANES]
        g0, g1, g2, g3 = g[k], g[k + LANES], g[k + 2 * LANES], g[k + 3 * LANES]
        g4, g5, g6, g7 = g[k + 4 * LANES], g[k + 5 * LANES], g[k + 6 * LANES], g[k + 7 * LANES]
        _put_sums(sums, k, c0, c1, c2, c3, c4, c5, c6, c7, g0, g1, g2, g3, g4, g5, g6, g7)
        if centred is None:
            _put_squares(sums, k, c0, c1, c2, c3, c4, c5, c6, c7)


@compiled(fastmath={"contract"})
def _put_squares(
    sums: Numbers,
    k: int,
    c0: float,
    c1: float,
    c2: float,
    c3: float,
    c4: float,
    c5: float,
    c6: float,
    c7: float,
) -> None:
    """Store the sum of the squares of a run in the place of its sum."""
    sums[k] = pairwise(c0 * c0, c1 * c1, c2 * c2, c3 * c3, c4 * c4, c5 * c5, c6 * c6, c7 * c7)


@compiled(fastmath={"contract"})
def _put_sums(
    sums: Numbers,
    k: int,
    c0: float,
    c1: float,
    c2: float,
    c3: float,
    c4: float,
    c5: float,
    c6: float,
    c7: float,
    g0: float,
    g1: float,
    g2: float,
    g3: float,
    g4: float,
    g5: float,
    g6: float,
    g7: float,
) -> None:
    """Store the sums of a run."""
    sums[k] = pairwise(c0, c1, c2, c3, c4, c5, c6, c7)
    sums[k + LANES] = pairwise(g0, g1, g2, g3, g4, g5, g6, g7)
    sums[k + 2 * LANES] = pairwise(
        g0 * c0, g1 * c1, g2 * c2, g3 * c3, g4 * c4, g5 * c5, g6 * c6, g7 * c7
    )
    sums[k + 3 * LANES] = pairwise(
        g0 * g0, g1 * g1, g2 * g2, g3 * g3, g4 * g4, g5 * g5, g6 * g6, g7 * g7
    )
