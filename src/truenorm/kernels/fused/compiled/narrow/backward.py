"""Level 1, backward: dx of rows of at most float32 with the rounding test, and sums of columns.

Rows are taken GROUP at a time, as in forward: first the sums along each row, then dx and the
group's share of dgamma and dbeta in one sweep, some columns at a time.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.columns.column_sums import (
    add_to_dbeta,
    add_to_dgamma,
    is_exact_group,
)
from truenorm.kernels.fused.compiled.elements.encoding import (
    as_bits,
    decode,
    encode,
    layout,
    magnitude,
)
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.elements.vectors import prefer_wide_vectors
from truenorm.kernels.fused.compiled.narrow.structure import is_constant, write_two
from truenorm.kernels.fused.compiled.rows.row_sums import row_sums
from truenorm.kernels.fused.compiled.rows.statistics import (
    error_of_mean,
    error_of_r,
    error_of_w,
)
from truenorm.kernels.fused.compiled.rows.sums import depth_of_sum
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import (
    CHANGED,
    COLUMNS,
    DONE,
    GROUP,
    NOT_FINITE,
    REFUSED,
    SHARES,
    SLACK,
    UNDEFINED,
    Centred,
    Coded,
    Numbers,
    States,
    U,
)

__all__ = [
    "COMMON",
    "NUMBERS",
    "OF_C",
    "OF_G",
    "backward",
    "row_numbers",
    "write_dx",
]

NEAR, LOW, R, A, Q, COMMON, OF_G, OF_C, OF_DY, OF_TERM = range(10)
"""The numbers of a row that its elements need: see `row_numbers`."""

NUMBERS = 10


@compiled
def row_numbers(
    x: Coded,
    dy: Coded,
    gamma: Numbers,
    kept: Numbers,
    eps: float,
    centred: Centred,
    partial: Numbers,
    row: Numbers,
) -> Any:
    """Find what the elements of a row need, and return whether x has changed."""
    size = x.shape[0]
    h = depth_of_sum(size)
    near, low, v = kept[0], kept[1], kept[2]
    w = v + eps
    r = 1 / np.sqrt(w)
    s = np.sqrt(v + low * low)
    of_mean = error_of_mean(low, v, h)
    of_w = error_of_w(low, v, w, h)
    of_r = error_of_r(of_w)
    centring = of_mean + U * s
    c, a, p, square = row_sums(x, dy, gamma, near, low, centred, partial)
    if centred is None:
        a = 0.0
    g_rms = np.sqrt(square)
    q = p / w
    of_p = (h + 4) * U * g_rms * s + of_mean * abs(a)
    of_q = of_p / w + abs(q) * (of_w + U)  # (E9)
    row[NEAR], row[LOW], row[R], row[A], row[Q] = near, low, r, a, q
    row[COMMON] = SLACK * r * ((h + 1) * U * g_rms + abs(q) * centring)  # (E8), (E10)
    row[OF_G] = SLACK * r * (of_r + 4 * U)
    row[OF_C] = SLACK * r * (of_q + abs(q) * (of_r + 6 * U))
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
        shares[j + COLUMNS] += abs(slope) * (of_dy + of_term * abs(xhat))  # (E12)
        shares[j + 2 * COLUMNS] += slope
    return difference != 0


@compiled
def _extent(dy: Coded) -> Any:
    """Return the magnitudes of the smallest element but zero, less one, and of the largest."""
    smallest, largest = np.uint32(0xFFFFFFFF), np.int32(0)
    for j in range(dy.shape[0]):
        size = magnitude(dy[j])
        largest = max(largest, size)
        smallest = min(smallest, np.uint32(size - np.int32(1)))
    return smallest, largest


@compiled
def backward(
    dy: Coded,
    x: Coded,
    kept: Numbers,
    gamma: Numbers,
    eps: float,
    centred: Centred,
    dx: Coded,
    sums: Numbers,
    status: States,
    scratch: Numbers,
) -> Any:
    """Write dx and what became of each row, and add to the sums of columns.

    Returns how many rows are not done, and between which magnitudes all dy lie: see `_extent`.
    """
    rows, size = x.shape
    shares, numbers = scratch[: SHARES * COLUMNS], scratch[SHARES * COLUMNS :][: GROUP * NUMBERS]
    partial = scratch[SHARES * COLUMNS + GROUP * NUMBERS :]
    mantissa, bias = layout(dy)
    infinity = np.int64(2 * bias + 1) << mantissa
    left_over = 0
    all_smallest, all_largest = np.int64(0xFFFFFFFF), np.int64(0)
    for start in range(0, rows, GROUP):
        stop = min(start + GROUP, rows)
        group_smallest, group_largest = np.int64(0xFFFFFFFF), np.int64(0)
        for i in range(start, stop):
            smallest, largest = _extent(dy[i])
            status[i] = DONE
            if largest >= infinity:
                status[i] = NOT_FINITE
                continue
            group_smallest = min(group_smallest, np.int64(smallest))
            group_largest = max(group_largest, np.int64(largest))
            row = numbers[(i - start) * NUMBERS :]
            changed = row_numbers(x[i], dy[i], gamma, kept[i], eps, centred, partial, row)
            if kept[i, 0] != kept[i, 0]:
                status[i] = UNDEFINED
            elif changed:
                status[i] = CHANGED
        all_smallest = min(all_smallest, group_smallest)
        all_largest = max(all_largest, group_largest)
        exact = is_exact_group(group_smallest, group_largest, mantissa, bias)
        for left in range(0, size, COLUMNS):
            right = min(left + COLUMNS, size)
            fill(shares, 0.0)
            for i in range(start, stop):
                if (
                    status[i] != NOT_FINITE
                    and write_dx(
                        x[i, left:right],
                        dy[i, left:right],
                        gamma[left:right],
                        numbers[(i - start) * NUMBERS :],
                        dx[i, left:right],
                        shares,
                    )
                    and status[i] == DONE
                ):
                    status[i] = REFUSED
            add_to_dgamma(sums[:, left:right], shares)
            if exact:
                add_to_dbeta(sums[:, left:right], shares[2 * COLUMNS :])
        for i in range(start, stop):
            if status[i] == NOT_FINITE:
                left_over += 1
                continue
            if not exact:
                add_to_dbeta(sums, dy[i])
            left_over += _finish_row(dy[i], gamma, kept[i], eps, centred, dx[i], status[i : i + 1])
    return left_over, all_smallest, all_largest


@compiled
def _finish_row(
    dy: Coded,
    gamma: Numbers,
    kept: Numbers,
    eps: float,
    centred: Centred,
    dx: Coded,
    status: States,
) -> Any:
    """Put in place what structure says of a row; return whether something is left to do."""
    if status[0] != CHANGED and status[0] != UNDEFINED:
        if is_constant(dy, gamma, centred):
            fill(dx, encode(0.0, dx[0]))
            status[0] = DONE
        elif centred is not None and dy.shape[0] == 2:
            status[0] = REFUSED if write_two(dy, gamma, kept, eps, dx) else DONE
    return status[0] != DONE
