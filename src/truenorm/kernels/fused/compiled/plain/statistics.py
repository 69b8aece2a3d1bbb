"""Mean, variance and 1/sqrt(variance + eps) of a row of float64 numbers, each to a few u.

As at level 1, but sums are compensated from runs of eight on, and what is computed once a row is
computed in pairs: (G1) to (G3) of docs/error-analysis.md.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.elements.vectors import add_in_any_order, prefer_wide_vectors
from truenorm.kernels.fused.compiled.pairs.arithmetic import (
    add,
    divide_float,
    inverse_root,
    multiply,
    two_sum,
)
from truenorm.kernels.fused.compiled.rows.statistics import WIDTH, put_moments
from truenorm.kernels.fused.compiled.rows.sums import LANES, add_segments, pair_of_lanes
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import COLUMNS, Centred, Numbers

__all__ = [
    "LANES_OF_ROW",
    "add_moments",
    "are_finite",
    "are_moderate",
    "inverse_deviation",
    "is_in_range",
    "near_mean",
    "statistics_of",
]

LANES_OF_ROW = 2 * WIDTH

SAMPLE = 512
"""How many elements say where a row is: on normal data that is a 22nd of the spread off."""


@compiled
def is_in_range(square: float) -> Any:
    """Return whether a mean square, or w, is one with which nothing overflows or underflows."""
    return 2.0**-800 < square < 2.0**800


@compiled
def are_finite(values: Numbers) -> Any:
    """Return whether all numbers are finite."""
    prefer_wide_vectors()
    finite = True
    for j in range(values.shape[0]):
        finite &= abs(values[j]) < np.inf
    return finite


@compiled
def are_moderate(values: Numbers) -> Any:
    """Return whether their products with r and c do not underflow or overflow, either."""
    prefer_wide_vectors()
    moderate = True
    for j in range(values.shape[0]):
        size = abs(values[j])
        moderate &= (size == 0) | ((size > 2.0**-500) & (size < 2.0**500))
    return moderate


@compiled
def near_mean(x: Numbers, centred: Centred) -> Any:
    """Return about the mean of the first elements; zero if rows are not centred.

    Any number near the mean will do, so its sum has no order; of a constant row it is that
    constant.
    """
    prefer_wide_vectors()
    if centred is None:
        return 0.0
    sample = min(x.shape[0], SAMPLE)
    first, total = x[0], 0.0
    for j in range(sample):
        total = add_in_any_order(total, x[j] - first)
    return first + total / sample


@compiled
def add_moments(x: Numbers, near: float, lanes: Numbers, partial: Numbers) -> None:
    """Add d = x - near and its square over at most COLUMNS elements to the lanes."""
    put_moments(x, near, partial)
    add_segments(lanes, partial, x.shape[0], WIDTH)


@compiled
def statistics_of(
    x: Numbers, near: float, centred: Centred, lanes: Numbers, partial: Numbers
) -> Any:
    """Return the mean of a row as two numbers, and its variance; its sums are in the lanes.

    Where `near` is further than an eighth of the spread from the mean, the row is swept once
    more. Of a row that is not centred, zeros for the mean, and its mean square.
    """
    low, square, v = _means(x.shape[0], lanes)
    if centred is None:
        return 0.0, 0.0, square
    if not low * low <= v / 64 and 0 < square < np.inf:
        near += low
        fill(lanes[:LANES_OF_ROW], 0.0)
        for left in range(0, x.shape[0], COLUMNS):
            add_moments(x[left : min(left + COLUMNS, x.shape[0])], near, lanes, partial)
        low, square, v = _means(x.shape[0], lanes)
    return near, low, v


@compiled
def _means(size: int, lanes: Numbers) -> Any:
    """Return the means of d and of its square, and what the one leaves of the other."""
    low = divide_float(pair_of_lanes(lanes, 0, WIDTH), float(size))
    square = divide_float(pair_of_lanes(lanes, LANES, WIDTH), float(size))
    low_square = multiply(low, low)
    v = add(square, (-low_square[0], -low_square[1]))
    return low[0], square[0], v[0]


@compiled
def inverse_deviation(v: float, eps: float) -> Any:
    """Return 1/sqrt(v + eps), rounded about once, if v + eps is in range."""
    return inverse_root(two_sum(v, eps))[0]
