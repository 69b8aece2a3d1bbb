"""Level 1, backward: what the elements of a row need, and dx with the rounding test."""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import as_bits, decode, encode
from truenorm.kernels.fused.compiled.elements.vectors import prefer_wide_vectors
from truenorm.kernels.fused.compiled.rows.kept import kept_numbers
from truenorm.kernels.fused.compiled.rows.row_sums import means_of
from truenorm.kernels.fused.compiled.rows.statistics import (
    error_of_mean,
    error_of_r,
    error_of_w,
)
from truenorm.kernels.fused.compiled.rows.sums import depth_of_sum
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import (
    COLUMNS,
    GROUP,
    LOST_IN_Q,
    SHARE,
    SLACK,
    Centred,
    Coded,
    Numbers,
    U,
)

__all__ = ["COMMON", "NUMBERS", "OF_C", "OF_G", "row_numbers", "write_dx"]

NEAR, LOW, R, A, Q, COMMON, OF_G, OF_C, OF_DY, OF_TERM = range(10)
"""The numbers of a row that its elements need: see `row_numbers`."""

NUMBERS = 10


@compiled
def row_numbers(
    size: int, kept: Numbers, eps: float, centred: Centred, lanes: Numbers, row: Numbers
) -> Any:
    """Find what the elements of a row need from its sums, and return whether x has changed."""
    h = depth_of_sum(size)
    near, low, v = kept_numbers(kept, centred)
    w = v + eps
    r = 1 / np.sqrt(w)
    s = np.sqrt(v + low * low)
    of_mean = error_of_mean(low, v, h)
    of_w = error_of_w(low, v, w, h)
    of_r = error_of_r(of_w)
    centring = of_mean + U * s
    c, a, p, square = means_of(lanes, size, size > COLUMNS)
    g_rms = np.sqrt(square)
    of_a, lost = (h + 1) * U * g_rms, 0.0  # (E8)
    if centred is None:
        # (R1), (R2). -0: g - a is +0 where g is -0, and so is dx if x is zero, too.
        a, of_a, of_mean, centring, lost = -0.0, 0.0, 0.0, 0.0, LOST_IN_Q
    q = p / w
    of_p = (h + 4) * U * g_rms * s + of_mean * abs(a)
    of_q = of_p / w + abs(q) * (of_w + U)  # (E9)
    row[NEAR], row[LOW], row[R], row[A], row[Q] = near, low, r, a, q
    row[COMMON] = SLACK * r * (of_a + abs(q) * centring)  # (E10)
    row[OF_G] = SLACK * r * (of_r + 4 * U)
    row[OF_C] = SLACK * r * (of_q + abs(q) * (of_r + 6 * U)) + lost
    row[OF_DY] = SLACK * r * centring  # (E12), where a group is a block
    row[OF_TERM] = SLACK * (of_r + (GROUP + 6) * U)
    if centred is None:
        return not abs(c - v) <= 2 * (h + 6) * U * v
    return not abs(c) <= of_mean + (h + 4) * U * s + 2.0**-1000


@compiled(fastmath={"contract"})
def write_dx(x: Coded, dy: Coded, gamma: Numbers, row: Numbers, dx: Coded, shares: Numbers) -> Any:
    """Write dx of some columns, add to their sums, and return whether an element was refused."""
    prefer_wide_vectors()
    near, low, r, a, q = row[NEAR], row[LOW], row[R], row[A], row[Q]
    common, of_g, of_c = row[COMMON], row[OF_G], row[OF_C]
    of_dy, of_term = row[OF_DY], row[OF_TERM]
    like = dx[0]
    difference = np.int32(0)
    for j in range(x.shape[0]):
        c = (decode(x[j]) - near) - low
        slope = decode(dy[j])
        g = slope * gamma[j] - a
        z = r * (g - c * q)
        bound = common + of_g * abs(g) + of_c * abs(c)  # (E10)
        lower = encode(z - bound, like)
        upper = encode(z + bound, like)
        dx[j] = lower
        difference = np.int32(difference | (as_bits(lower) ^ as_bits(upper)))
        xhat = c * r
        shares[j] += slope * xhat
        shares[j + SHARE] += abs(slope) * (of_dy + of_term * abs(xhat))  # (E12)
        shares[j + 2 * SHARE] += slope
    return difference != 0
