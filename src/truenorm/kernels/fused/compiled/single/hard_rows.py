"""Fast mode, backward: a row that float32 cannot hold, in float64."""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode, encode
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.narrow.backward import LANES_OF_ROW
from truenorm.kernels.fused.compiled.narrow.dx import (
    COMMON,
    NUMBERS,
    OF_C,
    OF_G,
    row_numbers,
    write_dx,
)
from truenorm.kernels.fused.compiled.narrow.parameters import widen_gamma
from truenorm.kernels.fused.compiled.narrow.structure import is_constant, write_two
from truenorm.kernels.fused.compiled.rows.kept import kept_numbers
from truenorm.kernels.fused.compiled.rows.row_sums import add_row_sums
from truenorm.kernels.fused.compiled.rows.sums import SPACE, clear_last_segment
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import (
    CHANGED,
    COLUMNS,
    DONE,
    NOT_FINITE,
    SHARE,
    SHARES,
    UNDEFINED,
    Centred,
    Coded,
    Numbers,
)

__all__ = ["HARD", "NO_NUMBERS", "do_in_float64"]

HARD = SHARES + COLUMNS + NUMBERS + LANES_OF_ROW + SPACE
"""Scratch for such a row."""

NO_NUMBERS = 255
"""In place of what became of a row: gamma is not finite."""


@compiled
def _is_finite(dy: Coded) -> Any:
    for j in range(dy.shape[0]):
        if not abs(decode(dy[j])) < np.inf:
            return False
    return True


@compiled
def do_in_float64(
    dy: Coded,
    x: Coded,
    kept: Numbers,
    gamma: Coded,
    eps: float,
    centred: Centred,
    scratch: Numbers,
    dx: Coded,
    sums: Numbers,
) -> Any:
    """Do a row by the kernel of level 1 without its test, and return what became of it."""
    if not _is_finite(dy):
        return NOT_FINITE
    size = x.shape[0]
    shares, columns = scratch[:SHARES], scratch[SHARES:][:COLUMNS]
    numbers = scratch[SHARES + COLUMNS :][:NUMBERS]
    lanes = scratch[SHARES + COLUMNS + NUMBERS :][:LANES_OF_ROW]
    partial = scratch[SHARES + COLUMNS + NUMBERS + LANES_OF_ROW :]
    near, low, _ = kept_numbers(kept, centred)
    clear_last_segment(partial)
    for left in range(0, size, COLUMNS):
        right = min(left + COLUMNS, size)
        if not widen_gamma(gamma[left:right], columns):
            return NO_NUMBERS
        px, pdy = x[left:right], dy[left:right]
        add_row_sums(px, pdy, columns, near, low, centred, left == 0, lanes, partial)
    changed = row_numbers(size, kept, eps, centred, lanes, numbers)
    numbers[COMMON] = numbers[OF_G] = numbers[OF_C] = 0.0
    for left in range(0, size, COLUMNS):
        right = min(left + COLUMNS, size)
        widen_gamma(gamma[left:right], columns)
        fill(shares, 0.0)
        write_dx(x[left:right], dy[left:right], columns, numbers, dx[left:right], shares)
        for j in range(right - left):
            sums[0, left + j] += shares[j]
            sums[1, left + j] += shares[j + 2 * SHARE]
    if kept[0] != kept[0]:
        return UNDEFINED
    if is_constant(dy, gamma, centred):
        fill(dx, encode(0.0, dx[0]))
    elif centred is not None and size == 2:
        write_two(dy, gamma, kept, eps, dx)
    return CHANGED if changed else DONE
