"""Level 2: one row in double-double, its mean, variance and bounds; see docs/error-analysis.md.

The row is scaled by a power of two, so that its largest element is about 1. It is shifted by a
float64 near its mean, which is exact as a pair, and the sums of the shifted elements and of their
squares give the rest, as at level 1 but in pairs.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode
from truenorm.kernels.fused.compiled.pairs.arithmetic import (
    add,
    add_float,
    inverse_root,
    multiply,
    power_of_two,
    two_sum,
)
from truenorm.kernels.fused.compiled.pairs.moments import PAIR_LANES, middle, moments, pair_depth
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import BY_PAIRS, SLACK, TINY, Centred, Coded, Numbers, Pair, W

__all__ = [
    "CHUNK",
    "C_HIGH",
    "C_LOW",
    "ERROR",
    "G_HIGH",
    "G_LOW",
    "SCRATCH",
    "WORK",
    "Z_HIGH",
    "Z_LOW",
    "PairRow",
    "centre",
    "describe",
    "keep_row",
    "keep_rows",
    "root_mean_square",
]


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
def describe(x: Coded, eps: float, centred: Centred, row: Numbers, lanes: Numbers) -> Any:
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
        near, low, square, v = _moments_of(row, centred, lanes)
        s = np.sqrt(square[0])
        h = pair_depth(size)
        centring = TINY if centred is None else SLACK * (h + 6) * W * s  # (R3), (F2)
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
def keep_row(kept: Numbers, found: PairRow, centred: Centred) -> None:
    """Keep the mean of a row as a pair, and its power of two; or its root mean square.

    The last number is below zero, as the variance that fast mode keeps of other rows never is.
    """
    if centred is None:
        kept[0] = -root_mean_square(found)
    else:
        kept[0], kept[1] = add_float((found.low_high, found.low_low), found.near)
        kept[2] = found.exponent + BY_PAIRS


@compiled
def root_mean_square(found: PairRow) -> Any:
    """Return that of a row that is not centred; of zeros and near them the smallest number."""
    return max(np.ldexp(found.spread, found.exponent), 5e-324)


@kernel
def keep_rows(x: Coded, eps: float, centred: Centred, kept: Numbers, scratch: Numbers) -> None:
    """Write what is kept of some rows, which are finite."""
    row, lanes = scratch[SCRATCH:][: x.shape[1]], scratch[WORK:SCRATCH]
    for i in range(x.shape[0]):
        found = describe(x[i], eps, centred, row, lanes)
        keep_row(kept[i], found, centred)


@compiled
def _moments_of(row: Numbers, centred: Centred, lanes: Numbers) -> Any:
    """Return a float64 near the mean, the rest of the mean, the mean of (x - near)**2, and v."""
    if centred is None:
        _, square = moments(row, 0.0, lanes)
        return 0.0, (0.0, 0.0), square, square
    near = middle(row, lanes)
    low, square = moments(row, near, lanes)
    v = add(square, _negative(multiply(low, low)))
    if not low[0] * low[0] <= 0.25 * v[0]:
        near += low[0]
        low, square = moments(row, near, lanes)
        v = add(square, _negative(multiply(low, low)))
    return near, low, square, v


@compiled
def _load(x: Coded, row: Numbers) -> Any:
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
def _scale(row: Numbers, exponent: int) -> None:
    """Multiply a row by a power of two that float64 may not have: by two, one after the other."""
    first = power_of_two(exponent // 2)
    second = power_of_two(exponent - exponent // 2)
    for j in range(row.shape[0]):
        row[j] = row[j] * first * second


@compiled
def _negative(a: Pair) -> Any:
    return -a[0], -a[1]


@compiled
def centre(row: Numbers, near: float, low: Pair, work: Numbers) -> None:
    """Write c of some elements as pairs to the work space."""
    for j in range(row.shape[0]):
        c = add(two_sum(row[j], -near), (-low[0], -low[1]))
        work[j + C_HIGH] = c[0]
        work[j + C_LOW] = c[1]
