"""Fast mode, backward: rows of at most float32 in float32, sums over rows in float64.

Rows that float32 cannot hold are done in float64 by the kernel of level 1, as in forward. A block
of rows has sums of its own; how rows are cut into blocks depends on their number alone.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.column_sums import SHARES
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.fused.encoding import decode, decode_single, encode, encode_single
from truenorm.kernels.fused.fast_forward import is_easy
from truenorm.kernels.fused.filling import fill
from truenorm.kernels.fused.narrow_backward import (
    CHANGED,
    COMMON,
    NOT_FINITE,
    NUMBERS,
    OF_C,
    OF_G,
    is_constant,
    row_numbers,
    write_dx,
    write_two,
)
from truenorm.kernels.fused.narrow_forward import COLUMNS, DONE, GROUP, UNDEFINED
from truenorm.kernels.fused.row_sums import WIDTH, row_sums
from truenorm.kernels.fused.sums import segments_of
from truenorm.kernels.fused.vectors import prefer_wide_vectors

__all__ = ["backward"]

HIGH, LOW, R, A, Q, SINGLE = range(6)
"""The float32 numbers of a row that its elements need; SINGLE says that there are such."""


@compiled
def _single_numbers(
    x: Any, dy: Any, gamma: Any, kept: Any, eps: Any, partial: Any, row: Any
) -> Any:
    """Find the numbers of a row in float32, if they can be had, and return the mean of c over s.

    g must be neither so large nor so small that its products leave the range of float32.
    """
    row[SINGLE] = np.float32(0)
    near, low, v = kept[0], kept[1], kept[2]
    if gamma.shape[0] == 0 or x.shape[0] == 2 or not is_easy(v, eps):
        return 0.0
    high = np.float32(near + low)
    rest = np.float32((near - high) + low)
    c, a, p, square = row_sums(x, dy, gamma, high, rest, partial)
    if 2.0**-100 < square < 2.0**100:
        w = v + eps
        row[HIGH], row[LOW], row[R] = high, rest, np.float32(1 / np.sqrt(w))
        row[A], row[Q], row[SINGLE] = np.float32(a), np.float32(p / w), np.float32(1)
    return c / np.sqrt(v)


@compiled(fastmath={"contract"})
def _write_single(x: Any, dy: Any, gamma: Any, row: Any, dx: Any, shares: Any) -> None:
    """Write dx of some columns, and add to their sums."""
    prefer_wide_vectors()
    high, low, r, a, q = row[HIGH], row[LOW], row[R], row[A], row[Q]
    like = dx[0]
    for j in range(x.shape[0]):
        c = (decode_single(x[j]) - high) - low
        slope = decode_single(dy[j])
        dx[j] = encode_single(r * ((slope * gamma[j] - a) - c * q), like)
        wide = np.float64(slope)  # a term may be larger than float32 allows, and its sum not
        shares[j] += wide * np.float64(c * r)
        shares[j + 2 * COLUMNS] += wide


@compiled
def _is_finite(dy: Any) -> Any:
    for j in range(dy.shape[0]):
        if not abs(decode(dy[j])) < np.inf:
            return False
    return True


@compiled
def _begin_row(
    dy: Any,
    x: Any,
    kept: Any,
    gamma: Any,
    single: Any,
    eps: Any,
    partial: Any,
    numbers: Any,
    singles: Any,
) -> Any:
    """Find the numbers of a row, and return what is to become of it."""
    drift = _single_numbers(x, dy, single, kept, eps, partial, singles)
    if singles[SINGLE] != 0:
        return DONE if abs(drift) <= 2.0**-19 else CHANGED
    if not _is_finite(dy):
        return NOT_FINITE
    changed = row_numbers(x, dy, gamma, kept, eps, partial, numbers)
    numbers[COMMON] = numbers[OF_G] = numbers[OF_C] = 0.0  # nothing is tested here
    if kept[0] != kept[0]:
        return UNDEFINED
    return CHANGED if changed else DONE


@compiled
def backward(
    dy: Any,
    x: Any,
    kept: Any,
    gamma: Any,
    single: Any,
    nan: Any,
    eps: Any,
    dx: Any,
    sums: Any,
    status: Any,
) -> Any:
    """Write dx and what became of each row, and add dgamma and dbeta; return who is not done."""
    rows, size = x.shape
    partial = np.empty(segments_of(size) * WIDTH)
    numbers, singles = np.empty((GROUP, NUMBERS)), np.empty((GROUP, SINGLE + 1), np.float32)
    shares = np.empty(SHARES * COLUMNS)
    left_over = 0
    for start in range(0, rows, GROUP):
        stop = min(start + GROUP, rows)
        for i in range(start, stop):
            k = i - start
            status[i] = _begin_row(
                dy[i], x[i], kept[i], gamma, single, eps, partial, numbers[k], singles[k]
            )
        for left in range(0, size, COLUMNS):
            right = min(left + COLUMNS, size)
            fill(shares, 0.0)
            for i in range(start, stop):
                if status[i] == NOT_FINITE:
                    continue
                px, pdy, pdx = x[i, left:right], dy[i, left:right], dx[i, left:right]
                if singles[i - start, SINGLE] != 0:
                    _write_single(px, pdy, single[left:right], singles[i - start], pdx, shares)
                else:
                    write_dx(px, pdy, gamma[left:right], numbers[i - start], pdx, shares)
            for j in range(right - left):
                sums[0, left + j] += shares[j]
                sums[1, left + j] += shares[j + 2 * COLUMNS]
        for i in range(start, stop):
            left_over += status[i] != DONE
            if singles[i - start, SINGLE] == 0 and status[i] != NOT_FINITE:
                _finish_row(dy[i], gamma, kept[i], nan, eps, dx[i])
    return left_over


@compiled
def _finish_row(dy: Any, gamma: Any, kept: Any, nan: Any, eps: Any, dx: Any) -> None:
    """Put in place what structure says of a row."""
    if kept[0] != kept[0]:
        fill(dx, nan)
    elif is_constant(dy, gamma):
        fill(dx, encode(0.0, dx[0]))
    elif dy.shape[0] == 2:
        write_two(dy, gamma, kept, eps, dx)
