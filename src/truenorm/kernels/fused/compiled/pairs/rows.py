"""Level 2: one row in double-double, its mean, variance and bounds; see docs/error-analysis.md.

The row is scaled by a power of two, so that its largest element is about 1. It is shifted by a
float64 near its mean, which is exact as a pair, and the sums of the shifted elements and of their
squares give the rest, as at level 1 but in pairs.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.pairs.arithmetic import (
    add,
    add_float,
    divide_float,
    inverse_root,
    multiply,
    power_of_two,
    two_sum,
)
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import SLACK, W

__all__ = [
    "CHUNK",
    "C_HIGH",
    "C_LOW",
    "ERROR",
    "G_HIGH",
    "G_LOW",
    "PAIR_BLOCK",
    "PAIR_LANES",
    "SCRATCH",
    "WORK",
    "Z_HIGH",
    "Z_LOW",
    "PairRow",
    "centre",
    "describe",
    "fold_pairs",
    "kept_of",
    "pair_depth",
]

PAIR_LANES = 128
PAIR_BLOCK = 64 * PAIR_LANES
"""Elements that are added in lanes; blocks of them are added as pairs."""


CHUNK = 512
"""Elements that are computed step by step, each step a loop that a compiler can take at once."""

C_HIGH, C_LOW, G_HIGH, G_LOW, Z_HIGH, Z_LOW, ERROR, WORK = (k * CHUNK for k in range(8))
"""Where in the work space the steps leave c, g, the result and its bound; and its length."""


SCRATCH = WORK + 4 * PAIR_LANES
"""Numbers of scratch beside those of the length of a row: the work space, and lanes."""


class PairRow(NamedTuple):
    """A row x = (near + low + c)*2**exponent, with w*4**w_exponent = var + eps.

    The pairs (low, w, r) are in two parts. `factor` is 2**(exponent - w_exponent), `ratio` its
    square; the errors of w and of r are relative, that of c is 3*W*|c| + centring.
    """

    near: float
    low_high: float
    low_low: float
    w_high: float
    w_low: float
    r_high: float
    r_low: float
    exponent: int
    w_exponent: int
    factor: float
    ratio: float
    scaled_eps: float
    spread: float
    centring: float
    of_w: float
    of_r: float
    constant: bool


@compiled
def pair_depth(size: Any) -> Any:
    """Return H of (F1): the error of a sum along a row is at most H*W*sum|terms|."""
    in_lanes = min(size, PAIR_BLOCK) // PAIR_LANES + 8
    return 2.0 * (in_lanes + 1) ** 2 + 3 * (size // PAIR_BLOCK + 1)


@compiled
def describe(x: Any, eps: Any, centred: Any, row: Any, lanes: Any) -> Any:
    """Write the scaled row, and return what is known of it."""
    size = row.shape[0]
    largest, constant = _load(x, row)
    if centred is None:
        constant = largest == 0
    exponent = math.frexp(largest)[1] if largest > 0 else 0
    half = (math.frexp(eps)[1] + 1) // 2
    _scale(row, -exponent)
    near, s, centring, of_v = row[0], 0.0, 0.0, 0.0
    low, v = (0.0, 0.0), (0.0, 0.0)
    w_exponent, factor, ratio = half, 1.0, 1.0
    if not constant:
        near, low, square, v = _moments(row, centred, lanes)
        s = np.sqrt(square[0])
        h = pair_depth(size)
        if centred is not None:
            centring = SLACK * (h + 6) * W * s  # (F2)
        of_v = SLACK * (h + 21) * W * square[0] + 2 * abs(low[0]) * centring  # (F3)
        w_exponent = exponent + math.frexp(s)[1]
        if eps > 0:
            w_exponent = max(w_exponent, half)
        factor = power_of_two(exponent - w_exponent)
        ratio = power_of_two(2 * (exponent - w_exponent))
    scaled_eps = np.ldexp(eps, min(max(-2 * w_exponent, -2200), 2200))
    w = add_float((v[0] * ratio, v[1] * ratio), scaled_eps)
    of_w = of_v * ratio / w[0] + 4 * W  # (F4)
    r = inverse_root(w)
    return PairRow(
        near,
        low[0],
        low[1],
        w[0],
        w[1],
        r[0],
        r[1],
        exponent,
        w_exponent,
        factor,
        ratio,
        scaled_eps,
        s,
        centring,
        of_w,
        of_w / 2 * SLACK + 32 * W,
        constant,
    )


@compiled
def kept_of(found: Any, centred: Any) -> Any:
    """Return what is kept of a row: its mean as a pair, and a power of two; w if not centred."""
    if centred is None:
        part, exponent = math.frexp(found.w_high)
        return part, np.ldexp(found.w_low, -exponent), 2 * found.w_exponent + exponent
    high, low = add_float((found.low_high, found.low_low), found.near)
    return high, low, found.exponent


@compiled
def _moments(row: Any, centred: Any, lanes: Any) -> Any:
    """Return a float64 near the mean, the rest of the mean, the mean of (x - near)**2, and v."""
    if centred is None:
        _, square = _pair_moments(row, 0.0, lanes)
        return 0.0, (0.0, 0.0), square, square
    near = _middle(row, lanes)
    low, square = _pair_moments(row, near, lanes)
    v = add(square, _negative(multiply(low, low)))
    if not low[0] * low[0] <= 0.25 * v[0]:
        near += low[0]
        low, square = _pair_moments(row, near, lanes)
        v = add(square, _negative(multiply(low, low)))
    return near, low, square, v


@compiled
def _load(x: Any, row: Any) -> Any:
    """Write x as float64, and return its largest magnitude and whether it is constant."""
    first = decode(x[0])
    largest, differs = np.int64(0), False
    for j in range(row.shape[0]):
        value = decode(x[j])
        row[j] = value
        # As integers, since a compiler may not reorder the maximum of numbers that may be NaN.
        largest = max(largest, np.float64(abs(value)).view(np.int64))
        differs |= value != first
    return np.int64(largest).view(np.float64), not differs


@compiled
def _middle(row: Any, lanes: Any) -> Any:
    """Return a float64 near the mean."""
    sums = lanes[:PAIR_LANES]
    fill(sums, 0.0)
    for k in range(0, row.shape[0], PAIR_LANES):
        part = row[k : k + PAIR_LANES]
        for j in range(part.shape[0]):
            sums[j] += part[j]
    total = 0.0
    for j in range(PAIR_LANES):
        total += sums[j]
    return total / row.shape[0]


@compiled
def _scale(row: Any, exponent: Any) -> None:
    """Multiply a row by a power of two that float64 may not have: by two, one after the other."""
    first = power_of_two(exponent // 2)
    second = power_of_two(exponent - exponent // 2)
    for j in range(row.shape[0]):
        row[j] = row[j] * first * second


@compiled
def _negative(a: Any) -> Any:
    return -a[0], -a[1]


@compiled
def centre(row: Any, near: Any, low: Any, work: Any) -> None:
    """Write c of some elements as pairs to the work space."""
    for j in range(row.shape[0]):
        c = add(two_sum(row[j], -near), (-low[0], -low[1]))
        work[j + C_HIGH] = c[0]
        work[j + C_LOW] = c[1]


@compiled
def _pair_moments(row: Any, near: Any, lanes: Any) -> Any:
    """Return the means of d = x - near and of its square."""
    size = row.shape[0]
    first, second = (0.0, 0.0), (0.0, 0.0)
    for start in range(0, size, PAIR_BLOCK):
        block = row[start : start + PAIR_BLOCK]
        fill(lanes, 0.0)
        for k in range(0, block.shape[0], PAIR_LANES):
            _add_moments(block[k : k + PAIR_LANES], near, lanes)
        first = add(first, fold_pairs(lanes, 0))
        second = add(second, fold_pairs(lanes, 2 * PAIR_LANES))
    return divide_float(first, float(size)), divide_float(second, float(size))


@compiled
def _add_moments(x: Any, near: Any, lanes: Any) -> None:
    """Add d and its square to the lanes: high and low parts of the one, then of the other."""
    for k in range(x.shape[0]):
        d, e = two_sum(x[k], -near)
        s, f = two_sum(lanes[k], d)
        lanes[k] = s
        lanes[k + PAIR_LANES] += f + e
        square, g = multiply((d, e), (d, e))
        s, f = two_sum(lanes[k + 2 * PAIR_LANES], square)
        lanes[k + 2 * PAIR_LANES] = s
        lanes[k + 3 * PAIR_LANES] += f + g


@compiled
def fold_pairs(lanes: Any, start: Any) -> Any:
    """Return the sum of the lanes that begin at `start`: high parts, then low parts."""
    high = lanes[start : start + PAIR_LANES]
    low = lanes[start + PAIR_LANES : start + 2 * PAIR_LANES]
    half = PAIR_LANES // 2
    while half > 0:
        for k in range(half):
            s, e = two_sum(high[k], high[k + half])
            high[k] = s
            low[k] += low[k + half] + e
        half //= 2
    return two_sum(high[0], low[0])
