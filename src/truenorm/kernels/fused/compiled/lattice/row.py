"""A row for the lattice: its unit, and r and the mean as pairs good to some 85 bits.

Sums along a row are taken in two parts: what lies on a grid so coarse that lanes add it up without
error, and the small rest. docs/scale.md derives the bounds.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import (
    as_bits,
    decode,
    magnitude,
    of_magnitude,
)
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.elements.vectors import arrays_are_apart, prefer_wide_vectors
from truenorm.kernels.fused.compiled.pairs.arithmetic import (
    add,
    add_float,
    divide_float,
    inverse_root,
    multiply,
    multiply_add,
    power_of_two,
)
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import BELOW, LOWEST, SLACK, Centred, Coded, Numbers, U, W

__all__ = ["SPLIT", "Extent", "RowFactors", "extent_of", "reach_of", "row_factors", "unit_of"]

LANES = 64
"""Sums beside each other; four times as many numbers of scratch."""

WITHOUT_ERROR = 8
"""Lanes that add up without error: each is below 2**50 units of its grid."""

SPLIT = 1.5 * 2.0**52
"""Added and subtracted, it leaves an integer; times a power of two, a multiple of that."""


class Extent(NamedTuple):
    """The largest |dy| of a row, and its smallest and largest x."""

    dy: float
    low: float
    high: float


class RowFactors(NamedTuple):
    """dy*xhat, in units, is dy*(x - near)*r + dy*s for pairs r and s.

    `bound` is that of the error of any term, in units; infinite if nothing is known.
    """

    near: float
    r_high: float
    r_low: float
    s_high: float
    s_low: float
    bound: float


@compiled
def extent_of(dy: Coded, x: Coded) -> Any:
    """Return the extent of a row of finite numbers."""
    slope, low, high = _extent(dy, x)
    return Extent(decode(of_magnitude(slope, dy[0])), _value(low, x[0]), _value(high, x[0]))


@compiled
def _extent(dy: Coded, x: Coded) -> Any:
    """Return it in magnitudes with a sign: as integers, so that a compiler makes vectors."""
    prefer_wide_vectors()
    slope, low, high = np.int32(0), np.int32(2**31 - 1), np.int32(-(2**31) + 1)
    for j in range(x.shape[0]):
        size = magnitude(x[j])
        signed = size if size == as_bits(x[j]) else np.int32(-size)
        low, high = min(low, signed), max(high, signed)
        slope = max(slope, magnitude(dy[j]))
    return slope, low, high


@compiled
def _value(signed: int, like: Any) -> Any:
    size = decode(of_magnitude(abs(signed), like))
    return -size if signed < 0 else size


@compiled
def unit_of(slope: float, reach: float, half_of_eps: int, half_of_size: int) -> Any:
    """Return e: terms are rounded to multiples of 2**e (L1); see `kernels.lattice.units`.

    `slope` is the largest |dy| of the row.
    """
    of_xhat = min(math.frexp(reach)[1] + half_of_eps, half_of_size)
    return max(math.frexp(slope)[1] + of_xhat - BELOW, LOWEST)


@compiled
def reach_of(extent: Extent, centred: Centred) -> Any:
    """Return what |c| is at most, as a float64: zero if all terms of the row are."""
    if extent.dy == 0:
        return 0.0
    if centred is None:
        return max(abs(extent.low), abs(extent.high))
    return extent.high - extent.low


@compiled
def row_factors(
    x: Coded, extent: Extent, unit: int, eps: float, centred: Centred, scratch: Numbers
) -> Any:
    """Return what the terms of a row are made of."""
    near = _shift(x, extent, centred)
    exponent = math.frexp(max(abs(extent.low - near), abs(extent.high - near)))[1]
    mean, square, of_mean, of_square = _moments(x, near, exponent, centred, scratch)
    shifted = multiply(mean, mean)
    w = add_float(add(square, (-shifted[0], -shifted[1])), eps)
    if not 2.0**-300 < w[0] < 2.0**300:
        return RowFactors(near, 0.0, 0.0, 0.0, 0.0, np.inf)
    of_w = (of_square + 2 * abs(mean[0]) * of_mean + 16 * W * square[0]) / w[0] + 4 * W
    of_r = of_w / 2 * SLACK + 32 * W  # (L8)
    scale = power_of_two(-unit)
    r = inverse_root(w)
    r = (r[0] * scale, r[1] * scale)
    s = multiply((-mean[0], -mean[1]), r)
    largest = extent.dy * (power_of_two(exponent) * r[0] + abs(s[0]))
    bound = SLACK * ((of_r + 24 * W) * largest + extent.dy * r[0] * of_mean) + 2.0**-26  # (L9)
    return RowFactors(near, r[0], r[1], s[0], s[1], bound)


@compiled
def _shift(x: Coded, extent: Extent, centred: Centred) -> Any:
    """Return what is subtracted first: where all x are far from zero, one of them.

    There x lies within a factor of three, so that the difference is exact in float64; elsewhere
    the mean is not large beside the spread, and x itself will do.
    """
    if centred is None:
        return 0.0
    smallest = max(extent.low, -extent.high)  # |x| if all have the same sign
    return decode(x[0]) if 2 * smallest > extent.high - extent.low else 0.0


@compiled
def _moments(x: Coded, near: float, exponent: int, centred: Centred, scratch: Numbers) -> Any:
    """Return the means of d = x - near and of its square, |d| < 2**exponent, and their errors."""
    size = float(x.shape[0])
    in_lane = -(-x.shape[0] // LANES)
    bits = 0
    while (1 << bits) < in_lane:
        bits += 1
    # On these grids a lane adds up without error.
    grid, square_grid = exponent + bits - 50, 2 * exponent + bits - 50
    fill(scratch[: 4 * LANES], 0.0)
    sums, rests = scratch[:LANES], scratch[LANES : 2 * LANES]
    squares, square_rests = scratch[2 * LANES : 3 * LANES], scratch[3 * LANES : 4 * LANES]
    split, square_split = SPLIT * power_of_two(grid), SPLIT * power_of_two(square_grid)
    _add_moments(x, near, split, square_split, centred, sums, rests, squares, square_rests)
    mean, of_mean = (0.0, 0.0), 0.0
    if centred is not None:
        mean = divide_float(_total(sums, rests), size)
        of_mean = (in_lane + 8) * U * power_of_two(grid - 1) + 2.0**8 * W * power_of_two(exponent)
    square = divide_float(_total(squares, square_rests), size)
    of_square = (in_lane + 9) * U * power_of_two(square_grid - 1) + 2.0**8 * W * square[0]  # (L7)
    return mean, square, of_mean, of_square


@compiled
def _add_moments(
    x: Coded,
    near: float,
    split: float,
    square_split: float,
    centred: Centred,
    sums: Numbers,
    rests: Numbers,
    squares: Numbers,
    square_rests: Numbers,
) -> None:
    """Add d and its square to the lanes: what lies on the grids, and the rests."""
    prefer_wide_vectors()
    arrays_are_apart()
    for k in range(0, x.shape[0], LANES):
        part = x[k : k + LANES]
        for j in range(part.shape[0]):
            d = decode(part[j]) - near
            if centred is not None:
                coarse = (d + split) - split
                sums[j] += coarse
                rests[j] += d - coarse
            square = multiply_add(d, d, square_split) - square_split
            squares[j] += square
            square_rests[j] += multiply_add(d, d, -square)


@compiled
def _total(sums: Numbers, rests: Numbers) -> Any:
    """Return the sum of all lanes as a pair; the rests are used up."""
    left = LANES // WITHOUT_ERROR
    half = LANES // 2
    while half > 0:
        for j in range(half):
            rests[j] += rests[j + half]
            if half >= left:
                sums[j] += sums[j + half]
        half //= 2
    total = (rests[0], 0.0)
    for j in range(left):
        total = add_float(total, sums[j])
    return total
