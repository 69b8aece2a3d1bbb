"""Fast mode, backward: rows of float64 numbers in float64, sums over rows in pairs.

As for float32: four rows are taken at once, COLUMNS of their columns at a time; beside each such
piece that is written, the sums along the next four rows are taken. Rows whose numbers are too
large or too small, and what is not finite, are refused: pairs do them.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.columns.column_sums import add_to_pairs
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.narrow.structure import is_constant, write_two
from truenorm.kernels.fused.compiled.plain.statistics import inverse_deviation, is_in_range
from truenorm.kernels.fused.compiled.plain.writing import (
    LOW,
    NEAR,
    NUMBERS,
    PLAIN,
    A,
    Q,
    R,
    write_four,
)
from truenorm.kernels.fused.compiled.rows.kept import kept_numbers
from truenorm.kernels.fused.compiled.rows.row_sums import WIDTH, means_of, put_row_sums
from truenorm.kernels.fused.compiled.rows.sums import SPACE, add_segments, clear_last_segment
from truenorm.kernels.fused.compiled.single.backward import FOUR
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import (
    CHANGED,
    COLUMNS,
    DBETA_HIGH,
    DBETA_LOW,
    DGAMMA_HIGH,
    DGAMMA_LOW,
    DONE,
    REFUSED,
    SHARE,
    Centred,
    Numbers,
    States,
)

__all__ = ["PLAIN_BACKWARD", "backward"]

LANES_OF_ROW = 2 * WIDTH
PLAIN_BACKWARD = FOUR * (NUMBERS + LANES_OF_ROW) + 4 * SHARE + SPACE
"""Scratch that backward needs."""


@compiled
def _is_zero(dy: Numbers, gamma: Numbers) -> Any:
    """Return whether g = gamma*dy is zero all along a row, and does not underflow."""
    for j in range(dy.shape[0]):
        if dy[j] != 0 and gamma[j] != 0:
            return False
    return True


@compiled
def _describe(
    dy: Numbers,
    gamma: Numbers,
    kept: Numbers,
    eps: float,
    centred: Centred,
    lanes: Numbers,
    row: Numbers,
) -> Any:
    """Find the numbers of a row, if they can be had, and return what became of it."""
    near, low, v = kept_numbers(kept, centred)
    if not v >= 0:  # level 2 kept it, or it has no result
        return REFUSED
    c, a, p, square = means_of(lanes, dy.shape[0], True)
    moved, spread = (abs(c - v), v) if centred is None else (abs(c), np.sqrt(v))
    if not moved <= 2.0**-46 * spread:
        return CHANGED
    w = v + eps
    if not (is_in_range(w) and (is_in_range(square) or (square == 0 and _is_zero(dy, gamma)))):
        return REFUSED
    row[NEAR], row[LOW], row[R] = near, low, inverse_deviation(v, eps)
    row[A], row[Q], row[PLAIN] = a, p / w, 1.0
    if centred is None:
        row[A] = -0.0  # g less that is +0 where it is -0
    return DONE


@compiled(inline="always")  # without references nothing returns an array
def _piece(rows: Numbers, i: int, left: int, right: int, row: Numbers, nothing: Numbers) -> Any:
    """Return some columns of a row, or zeros in its place."""
    return rows[i, left:right] if row[PLAIN] != 0 else nothing[: right - left]


@compiled
def _write_columns(
    dy: Numbers,
    x: Numbers,
    gamma: Numbers,
    columns: Any,
    numbers: Numbers,
    space: Numbers,
    dx: Numbers,
    sums: Numbers,
) -> Any:
    """Write dx of some columns of up to four rows, and add to their sums over rows.

    Returns whether no |dy| but zero is tiny.
    """
    start, left, right = columns
    zeros, waste = space[:COLUMNS], space[SHARE:][:COLUMNS]
    of_dgamma, of_dbeta = space[2 * SHARE :][:COLUMNS], space[3 * SHARE :][:COLUMNS]
    row0, row1 = numbers, numbers[NUMBERS:]
    row2, row3 = numbers[2 * NUMBERS :], numbers[3 * NUMBERS :]
    none_is_tiny = write_four(
        _piece(x, start, left, right, row0, zeros),
        _piece(x, start + 1, left, right, row1, zeros),
        _piece(x, start + 2, left, right, row2, zeros),
        _piece(x, start + 3, left, right, row3, zeros),
        _piece(dy, start, left, right, row0, zeros),
        _piece(dy, start + 1, left, right, row1, zeros),
        _piece(dy, start + 2, left, right, row2, zeros),
        _piece(dy, start + 3, left, right, row3, zeros),
        gamma[left:right],
        numbers,
        _piece(dx, start, left, right, row0, waste),
        _piece(dx, start + 1, left, right, row1, waste),
        _piece(dx, start + 2, left, right, row2, waste),
        _piece(dx, start + 3, left, right, row3, waste),
        of_dgamma,
        of_dbeta,
    )
    add_to_pairs(sums[DGAMMA_HIGH, left:right], sums[DGAMMA_LOW, left:right], of_dgamma)
    add_to_pairs(sums[DBETA_HIGH, left:right], sums[DBETA_LOW, left:right], of_dbeta)
    return none_is_tiny


@kernel
def backward(
    dy: Numbers,
    x: Numbers,
    kept: Numbers,
    gamma: Numbers,
    eps: float,
    centred: Centred,
    dx: Numbers,
    sums: Numbers,
    status: States,
    scratch: Numbers,
) -> Any:
    """Write dx and what became of each row, and add to the pairs of dgamma and dbeta.

    Returns how many rows are not done, and whether some dy is tiny: see `write_four`. dx must not
    overlap the others.
    """
    rows, size = x.shape
    numbers, rest = scratch[: FOUR * NUMBERS], scratch[FOUR * NUMBERS :]
    lanes, space = rest[: FOUR * LANES_OF_ROW], rest[FOUR * LANES_OF_ROW :][: 4 * SHARE]
    partial = rest[FOUR * LANES_OF_ROW + 4 * SHARE :][:SPACE]
    fill(space[:COLUMNS], 0.0)
    clear_last_segment(partial)
    left_over, some_are_tiny = 0, False
    for start in range(-FOUR, rows, FOUR):
        following = min(rows - start - FOUR, FOUR)  # rows of the next four
        fill(lanes, 0.0)
        for left in range(0, size, COLUMNS):
            right = min(left + COLUMNS, size)
            if start >= 0:
                piece = start, left, right
                none_is_tiny = _write_columns(dy, x, gamma, piece, numbers, space, dx, sums)
                some_are_tiny |= not none_is_tiny
            for k in range(following):
                i = start + FOUR + k
                px, pdy, pgamma = x[i, left:right], dy[i, left:right], gamma[left:right]
                near, low, _ = kept_numbers(kept[i], centred)
                put_row_sums(px, pdy, pgamma, near, low, centred, partial)
                add_segments(lanes[k * LANES_OF_ROW :], partial, right - left, WIDTH)
        for i in range(max(start, 0), min(start + FOUR, rows)):
            left_over += status[i] != DONE
            if status[i] == DONE:
                _finish_row(dy[i], gamma, kept[i], eps, centred, dx[i])
        fill(numbers, 0.0)
        for k in range(following):
            i = start + FOUR + k
            of_row, row = lanes[k * LANES_OF_ROW :], numbers[k * NUMBERS :]
            status[i] = _describe(dy[i], gamma, kept[i], eps, centred, of_row, row)
    return left_over, some_are_tiny


@compiled
def _finish_row(
    dy: Numbers, gamma: Numbers, kept: Numbers, eps: float, centred: Centred, dx: Numbers
) -> None:
    """Put in place what structure says of a row."""
    if is_constant(dy, gamma, centred):
        fill(dx, 0.0)
    elif centred is not None and dy.shape[0] == 2:
        write_two(dy, gamma, kept, eps, dx)
