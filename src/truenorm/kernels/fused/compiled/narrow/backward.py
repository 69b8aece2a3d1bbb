"""Level 1, backward: dx of rows of at most float32 with the rounding test, and sums of columns.

Rows are taken GROUP at a time, COLUMNS of their elements at a time, as in forward: dx and the
group's share of dgamma and dbeta in one sweep, and beside it the sums along the next rows.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.columns.column_sums import (
    add_to_dgamma,
    add_to_pairs,
    is_exact_group,
)
from truenorm.kernels.fused.compiled.elements.encoding import (
    encode,
    layout,
    magnitude,
    nan_like,
)
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.narrow.dx import NUMBERS, row_numbers, write_dx
from truenorm.kernels.fused.compiled.narrow.forward import SPECIAL
from truenorm.kernels.fused.compiled.narrow.parameters import widen_gamma
from truenorm.kernels.fused.compiled.narrow.structure import is_constant, write_two
from truenorm.kernels.fused.compiled.rows.kept import kept_numbers
from truenorm.kernels.fused.compiled.rows.row_sums import WIDTH, add_row_sums
from truenorm.kernels.fused.compiled.rows.sums import SPACE, clear_last_segment
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import (
    CHANGED,
    COLUMNS,
    DBETA_HIGH,
    DBETA_LOW,
    DGAMMA_BOUND,
    DGAMMA_HIGH,
    DGAMMA_LOW,
    DONE,
    GROUP,
    NOT_FINITE,
    REFUSED,
    SHARE,
    SHARES,
    UNDEFINED,
    Centred,
    Coded,
    Numbers,
    States,
)

__all__ = ["BACKWARD", "LANES_OF_ROW", "backward"]

NOTHING = np.int64(0xFFFFFFFF), np.int64(0)
"""The extent of no dy: see `_extent`."""

LANES_OF_ROW = 2 * WIDTH
BACKWARD = SHARES + COLUMNS + GROUP * (NUMBERS + 2 + LANES_OF_ROW) + SPACE
"""Scratch that backward needs."""


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
def _note_extent(dy: Coded, extents: Numbers, k: int) -> None:
    """Note the extent of some columns of row k beside that of those before."""
    smallest, largest = _extent(dy)
    extents[k] = min(extents[k], np.float64(smallest))
    extents[GROUP + k] = max(extents[GROUP + k], np.float64(largest))


@kernel
def backward(
    dy: Coded,
    x: Coded,
    kept: Numbers,
    gamma: Coded,
    eps: float,
    centred: Centred,
    dx: Coded,
    sums: Numbers,
    status: States,
    scratch: Numbers,
) -> Any:
    """Write dx and what became of each row, and add to the sums of columns.

    Where an element is refused, the first of its COLUMNS is NaN, which no element of such a row
    can be: so who looks again knows where to look.

    Returns how many rows are not done, and between which magnitudes all dy lie: see `_extent`.
    """
    rows, size = x.shape
    shares, columns = scratch[:SHARES], scratch[SHARES:][:COLUMNS]
    rest = scratch[SHARES + COLUMNS :]
    numbers, extents = rest[: GROUP * NUMBERS], rest[GROUP * NUMBERS :][: 2 * GROUP]
    lanes = rest[GROUP * (NUMBERS + 2) :][: GROUP * LANES_OF_ROW]
    partial = rest[GROUP * (NUMBERS + 2 + LANES_OF_ROW) :]
    mantissa, bias = layout(dy)
    infinity = np.int64(2 * bias + 1) << mantissa
    clear_last_segment(partial)
    left_over = 0
    exact = False
    smallest, largest = NOTHING
    for start in range(-GROUP, rows, GROUP):
        stop = min(start + GROUP, rows)
        following = min(rows - start - GROUP, GROUP)  # rows of the next group
        fill(extents[:GROUP], np.float64(NOTHING[0]))
        fill(extents[GROUP:], 0.0)
        for left in range(0, size, COLUMNS):
            right = min(left + COLUMNS, size)
            if not widen_gamma(gamma[left:right], columns):
                return SPECIAL, smallest, largest
            fill(shares, 0.0)
            for k in range(GROUP):
                i = start + k
                if (
                    0 <= i < stop
                    and status[i] != NOT_FINITE
                    and write_dx(
                        x[i, left:right],
                        dy[i, left:right],
                        columns,
                        numbers[k * NUMBERS :],
                        dx[i, left:right],
                        shares,
                    )
                    and (status[i] == DONE or status[i] == REFUSED)
                ):
                    status[i] = REFUSED
                    dx[i, left] = nan_like(dx[i, left])
                if k < following:
                    n = i + GROUP
                    near, low, _ = kept_numbers(kept[n], centred)
                    _note_extent(dy[n, left:right], extents, k)
                    add_row_sums(
                        x[n, left:right],
                        dy[n, left:right],
                        columns,
                        near,
                        low,
                        centred,
                        left == 0,
                        lanes[k * LANES_OF_ROW :],
                        partial,
                    )
            if start >= 0:
                add_to_dgamma(
                    sums[DGAMMA_HIGH, left:right],
                    sums[DGAMMA_LOW, left:right],
                    sums[DGAMMA_BOUND, left:right],
                    shares,
                )
                if exact:
                    add_to_pairs(
                        sums[DBETA_HIGH, left:right],
                        sums[DBETA_LOW, left:right],
                        shares[2 * SHARE :],
                    )
        if start >= 0:
            for i in range(start, stop):
                if status[i] == NOT_FINITE:
                    left_over += 1
                    continue
                if not exact:
                    add_to_pairs(sums[DBETA_HIGH], sums[DBETA_LOW], dy[i])
                left_over += _finish_row(
                    dy[i], gamma, kept[i], eps, centred, dx[i], status[i : i + 1]
                )
        group_smallest, group_largest = NOTHING
        for k in range(following):
            i = start + GROUP + k
            if extents[GROUP + k] >= infinity:
                status[i] = NOT_FINITE
                continue
            group_smallest = min(group_smallest, np.int64(extents[k]))
            group_largest = max(group_largest, np.int64(extents[GROUP + k]))
            row = numbers[k * NUMBERS :]
            changed = row_numbers(size, kept[i], eps, centred, lanes[k * LANES_OF_ROW :], row)
            status[i] = CHANGED if changed else DONE
            if kept[i, 0] != kept[i, 0]:
                status[i] = UNDEFINED
        exact = is_exact_group(group_smallest, group_largest, mantissa, bias)
        smallest, largest = min(smallest, group_smallest), max(largest, group_largest)
    return left_over, smallest, largest


@compiled
def _finish_row(
    dy: Coded,
    gamma: Coded,
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
            status[0] = DONE
            if write_two(dy, gamma, kept, eps, dx):
                status[0] = REFUSED
                dx[0] = nan_like(dx[0])
    return status[0] != DONE
