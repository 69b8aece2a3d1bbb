"""Fast mode, backward: rows of at most float32 in float32, sums over rows in float64.

Rows that float32 cannot hold are done in float64 by the kernel of level 1, as in forward. A block
of rows has sums of its own; how rows are cut into blocks depends on their number alone.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import (
    decode,
    encode,
)
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.narrow.backward import (
    COMMON,
    NUMBERS,
    OF_C,
    OF_G,
    row_numbers,
    write_dx,
)
from truenorm.kernels.fused.compiled.narrow.structure import is_constant, write_two
from truenorm.kernels.fused.compiled.rows.row_sums import row_sums
from truenorm.kernels.fused.compiled.single.forward import LARGEST, is_easy
from truenorm.kernels.fused.compiled.single.writing import (
    HIGH,
    LOW,
    SINGLE,
    SINGLES,
    A,
    Q,
    R,
    write_four,
    write_single,
)
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import (
    CHANGED,
    COLUMNS,
    DONE,
    NOT_FINITE,
    SHARES,
    UNDEFINED,
    Centred,
    Coded,
    Numbers,
    Singles,
    States,
)

__all__ = ["backward"]

FOUR = 4


@compiled
def _single_numbers(
    x: Coded,
    dy: Coded,
    gamma: Numbers,
    kept: Numbers,
    eps: float,
    centred: Centred,
    partial: Numbers,
    row: Numbers,
) -> Any:
    """Find the numbers of a row in float32, if they can be had, and return the mean of c over s.

    Where rows are not centred, the change of v over v. g must be neither so large nor so small
    that its products leave the range of float32.
    """
    near, low, v = kept[0], kept[1], kept[2]
    if (centred is not None and x.shape[0] == 2) or not is_easy(v, eps):
        return 0.0
    high = np.float32(near + low)
    rest = np.float32((near - high) + low)
    c, a, p, square = row_sums(x, dy, gamma, high, rest, centred, partial)
    if centred is None:
        a = 0.0
    if 2.0**-100 < square < 2.0**100:
        w = v + eps
        row[HIGH], row[LOW], row[R] = high, rest, 1 / np.sqrt(w)
        row[A], row[Q], row[SINGLE] = a, p / w, 1.0
    if centred is None:
        return (c - v) / v
    return c / np.sqrt(v)


@compiled
def _largest(values: Singles) -> Any:
    largest = np.float32(0)
    for j in range(values.shape[0]):
        largest = max(largest, abs(values[j]))
    return largest


@compiled
def _is_finite(dy: Coded) -> Any:
    for j in range(dy.shape[0]):
        if not abs(decode(dy[j])) < np.inf:
            return False
    return True


@compiled
def _do_in_float64(
    dy: Coded,
    x: Coded,
    kept: Numbers,
    gamma: Numbers,
    eps: float,
    centred: Centred,
    scratch: Numbers,
    dx: Coded,
    sums: Numbers,
) -> Any:
    """Do a row by the kernel of level 1 without its test, and return what became of it."""
    if not _is_finite(dy):
        return NOT_FINITE
    shares, numbers = scratch[: SHARES * COLUMNS], scratch[SHARES * COLUMNS :][:NUMBERS]
    partial = scratch[SHARES * COLUMNS + NUMBERS :]
    changed = row_numbers(x, dy, gamma, kept, eps, centred, partial, numbers)
    numbers[COMMON] = numbers[OF_G] = numbers[OF_C] = 0.0
    for left in range(0, x.shape[0], COLUMNS):
        right = min(left + COLUMNS, x.shape[0])
        fill(shares, 0.0)
        write_dx(x[left:right], dy[left:right], gamma[left:right], numbers, dx[left:right], shares)
        for j in range(right - left):
            sums[0, left + j] += shares[j]
            sums[1, left + j] += shares[j + 2 * COLUMNS]
    if kept[0] != kept[0]:
        return UNDEFINED
    if is_constant(dy, gamma, centred):
        fill(dx, encode(0.0, dx[0]))
    elif centred is not None and dy.shape[0] == 2:
        write_two(dy, gamma, kept, eps, dx)
    return CHANGED if changed else DONE


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
    """Write dx and what became of each row, and add to dgamma and dbeta.

    gamma is in float32. Returns how many rows are not done.
    """
    rows = x.shape[0]
    small = _largest(gamma) <= LARGEST
    singles, hard = scratch[: FOUR * SINGLES], scratch[FOUR * SINGLES :]
    partial = hard[SHARES * COLUMNS + NUMBERS :]
    left_over = 0
    for start in range(0, rows, FOUR):
        stop = min(start + FOUR, rows)
        easy = 0
        for i in range(start, stop):
            row = singles[(i - start) * SINGLES :]
            row[SINGLE], drift = 0.0, 0.0
            if small:
                drift = _single_numbers(x[i], dy[i], gamma, kept[i], eps, centred, partial, row)
            status[i] = DONE if abs(drift) <= 2.0**-19 else CHANGED
            easy += row[SINGLE] != 0
        if easy == FOUR:
            write_four(
                x[start],
                x[start + 1],
                x[start + 2],
                x[start + 3],
                dy[start],
                dy[start + 1],
                dy[start + 2],
                dy[start + 3],
                gamma,
                singles,
                dx[start],
                dx[start + 1],
                dx[start + 2],
                dx[start + 3],
                sums[0],
                sums[1],
            )
        for i in range(start, stop):
            row = singles[(i - start) * SINGLES :]
            if row[SINGLE] == 0:
                status[i] = _do_in_float64(
                    dy[i], x[i], kept[i], gamma, eps, centred, hard, dx[i], sums
                )
            elif easy < FOUR:
                write_single(x[i], dy[i], gamma, row, dx[i], sums[0], sums[1])
            left_over += status[i] != DONE
    return left_over
