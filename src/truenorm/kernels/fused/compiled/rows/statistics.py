"""Level 1: mean, variance and their bounds, for x of at most float32. See docs/error-analysis.md.

One sweep: x is shifted by `near`, the mean of its first elements as a float32 number, and the sums
of d = x - near and of its squares give the rest of the mean and the variance. That is as good as
two sweeps as long as `near` is within half a spread of the mean; otherwise, a second one is made.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode
from truenorm.kernels.fused.compiled.elements.vectors import add_in_any_order, prefer_wide_vectors
from truenorm.kernels.fused.compiled.rows.sums import (
    LANES,
    SEGMENT,
    SPACE,
    add_to_lanes,
    pairwise,
    total_of_lanes,
)
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import COLUMNS, Centred, Coded, Numbers, U

__all__ = [
    "WIDTH",
    "add_moments",
    "error_of_mean",
    "error_of_r",
    "error_of_w",
    "near_mean",
    "put_moments",
    "row_statistics",
    "statistics_of",
]

WIDTH = 2 * LANES
"""Of the lanes of both sums."""

SAMPLE = 64
"""How many elements say where a row is; their sum is exact if they are all the same."""


@compiled
def row_statistics(x: Coded, centred: Centred, lanes: Numbers, partial: Numbers) -> Any:
    """Return the mean of a row as a pair, and its variance, by a sweep of its own."""
    near = near_mean(x, centred)
    _sweep(x, near, lanes, partial)
    return statistics_of(x, near, centred, lanes, partial)


@compiled
def statistics_of(
    x: Coded, near: float, centred: Centred, lanes: Numbers, partial: Numbers
) -> Any:
    """Return the mean of a row as a pair, and its variance; NaN for a row that is not finite.

    Its sums are in the lanes. The variance is 0 for constant rows only. Of a row that is not
    centred, zeros for the mean, and its mean square.
    """
    low, square = _means(lanes, x.shape[0])
    if centred is None:
        return 0.0, 0.0, square if square < np.inf else np.nan
    v = square - low * low
    if not low * low <= 0.25 * v and square > 0:
        near = np.float64(np.float32(near + low))
        _sweep(x, near, lanes, partial)
        low, square = _means(lanes, x.shape[0])
        v = square - low * low
    if not square < np.inf:
        v = np.nan
    return near, low, v


@compiled
def _sweep(x: Coded, near: float, lanes: Numbers, partial: Numbers) -> None:
    """Put the sums of a row into the lanes."""
    for left in range(0, x.shape[0], COLUMNS):
        part = x[left : min(left + COLUMNS, x.shape[0])]
        add_moments(part, near, left == 0, lanes, partial)


@compiled
def _means(lanes: Numbers, size: int) -> Any:
    """Return the means of d (E1) and of its square (E2)."""
    total, squares = (
        total_of_lanes(lanes, 0, WIDTH, size > COLUMNS),
        total_of_lanes(lanes, LANES, WIDTH, size > COLUMNS),
    )
    return total / size, squares / size


@compiled
def near_mean(x: Coded, centred: Centred) -> Any:
    """Return about the mean of the first elements, to float32; zero if rows are not centred.

    Any number will do that is near the mean, so its sum has no order; but of a constant row it is
    that constant, since then the sum is exact.
    """
    prefer_wide_vectors()
    if centred is None:
        return 0.0
    sample = min(x.shape[0], SAMPLE)
    total = 0.0
    for j in range(sample):
        total = add_in_any_order(total, decode(x[j]))
    return np.float64(np.float32(total / sample))


@compiled(fastmath={"contract"})
def add_moments(x: Coded, near: float, first: bool, lanes: Numbers, partial: Numbers) -> None:
    """Add d = x - near and its square over at most COLUMNS elements to the lanes."""
    put_moments(x, near, partial)
    add_to_lanes(lanes, partial, x.shape[0], WIDTH, first)


@compiled(fastmath={"contract"})
def put_moments(x: Coded, near: float, partial: Numbers) -> None:
    """Store the sums of d = x - near and of its square over each segment."""
    prefer_wide_vectors()
    size = x.shape[0]
    whole = size // SEGMENT
    for k in range(whole):
        part = x[k * SEGMENT : (k + 1) * SEGMENT]
        sums = partial[k * WIDTH : (k + 1) * WIDTH]
        for lane in range(LANES):
            d0 = decode(part[lane]) - near
            d1 = decode(part[lane + LANES]) - near
            d2 = decode(part[lane + 2 * LANES]) - near
            d3 = decode(part[lane + 3 * LANES]) - near
            d4 = decode(part[lane + 4 * LANES]) - near
            d5 = decode(part[lane + 5 * LANES]) - near
            d6 = decode(part[lane + 6 * LANES]) - near
            d7 = decode(part[lane + 7 * LANES]) - near
            _put_run(sums, lane, d0, d1, d2, d3, d4, d5, d6, d7)
    if size > whole * SEGMENT:
        rest = partial[SPACE - SEGMENT : SPACE]
        _last_moments(x[whole * SEGMENT :], near, partial[whole * WIDTH :], rest)


@compiled
def _last_moments(x: Coded, near: float, sums: Numbers, d: Numbers) -> None:
    """Add up the runs of a segment that is not full."""
    for j in range(x.shape[0]):
        d[j] = decode(x[j]) - near
    for k in range(LANES):
        d0, d1, d2, d3 = d[k], d[k + LANES], d[k + 2 * LANES], d[k + 3 * LANES]
        d4, d5, d6, d7 = d[k + 4 * LANES], d[k + 5 * LANES], d[k + 6 * LANES], d[k + 7 * LANES]
        _put_run(sums, k, d0, d1, d2, d3, d4, d5, d6, d7)


@compiled(fastmath={"contract"})
def _put_run(
    sums: Numbers,
    k: int,
    d0: float,
    d1: float,
    d2: float,
    d3: float,
    d4: float,
    d5: float,
    d6: float,
    d7: float,
) -> None:
    """Store the sums of a run and of its squares."""
    sums[k] = pairwise(d0, d1, d2, d3, d4, d5, d6, d7)
    sums[k + LANES] = pairwise(
        d0 * d0, d1 * d1, d2 * d2, d3 * d3, d4 * d4, d5 * d5, d6 * d6, d7 * d7
    )


@compiled
def error_of_mean(low: float, v: float, depth: int) -> Any:
    """Bound the error of the mean, near + low (E3)."""
    return (depth + 2) * U * np.sqrt(v + low * low)


@compiled
def error_of_w(low: float, v: float, w: float, depth: int) -> Any:
    """Bound the relative error of w = v + eps (E4)."""
    square = v + low * low
    variance = (depth + 6) * U * square + 2 * abs(low) * error_of_mean(low, v, depth)
    return variance / w + U


@compiled
def error_of_r(of_w: float) -> Any:
    """Bound the relative error of r = 1/sqrt(w) (E5)."""
    return of_w / 2 + 2 * U
