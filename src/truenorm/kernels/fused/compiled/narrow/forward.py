"""Level 1, forward: y of rows of at most float32, in float64 with the rounding test.

Rows are taken GROUP at a time, COLUMNS of their elements at a time: the parameters of those stay
in the nearest cache while they serve all rows of the group. Beside each piece of a row that is
written, the sums of a row of the next group are taken: so memory is read while it is written.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import as_bits, decode, encode
from truenorm.kernels.fused.compiled.elements.vectors import prefer_wide_vectors
from truenorm.kernels.fused.compiled.narrow.parameters import (
    PARAMETERS,
    share_of_gamma,
    widen_parameters,
    write_constant,
)
from truenorm.kernels.fused.compiled.rows.kept import keep, kept_numbers
from truenorm.kernels.fused.compiled.rows.statistics import (
    WIDTH,
    add_moments,
    error_of_r,
    error_of_w,
    near_mean,
    row_statistics,
    statistics_of,
)
from truenorm.kernels.fused.compiled.rows.sums import SPACE, clear_last_segment, depth_of_sum
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import (
    BETA,
    COLUMNS,
    DONE,
    GAMMA,
    GROUP,
    REFUSED,
    SLACK,
    UNDEFINED,
    WEIGHT,
    Centred,
    Coded,
    Flags,
    Numbers,
    States,
    U,
)

__all__ = ["FORWARD", "SPECIAL", "forward", "refused_y", "statistics", "write_y"]

SPECIAL = -1
"""Returned in place of how many rows are not done: a parameter is not finite, nothing is right."""

LANES_OF_ROW = 2 * WIDTH
FORWARD = PARAMETERS + GROUP * (3 + LANES_OF_ROW) + SPACE
"""Scratch that forward needs."""


@compiled(fastmath={"contract"})
def write_y(
    x: Coded,
    near: float,
    low: float,
    r: float,
    k: float,
    gamma: Numbers,
    beta: Numbers,
    weight: Numbers,
    y: Coded,
) -> Any:
    """Write y of some columns of a row, and return whether an element was refused."""
    prefer_wide_vectors()
    like = y[0]
    difference = np.int32(0)
    for j in range(x.shape[0]):
        c = (decode(x[j]) - near) - low
        z = c * (r * gamma[j]) + beta[j]
        bound = k * (abs(z) + weight[j])
        lower = encode(z - bound, like)
        upper = encode(z + bound, like)
        y[j] = lower
        difference = np.int32(difference | (as_bits(lower) ^ as_bits(upper)))
    return difference != 0


@compiled(fastmath={"contract"})
def refused_y(
    x: Coded,
    kept: Numbers,
    columns: Numbers,
    eps: float,
    centred: Centred,
    y: Coded,
    refused: Flags,
) -> None:
    """Write y of a row once more, and note which elements the rounding test refuses."""
    near, low, v = kept_numbers(kept, centred)
    gamma, beta, weight = columns[GAMMA], columns[BETA], columns[WEIGHT]
    r, k = _scale_of(low, v, eps, depth_of_sum(x.shape[0]))
    like = y[0]
    for j in range(x.shape[0]):
        c = (decode(x[j]) - near) - low
        z = c * (r * gamma[j]) + beta[j]
        bound = k * (abs(z) + weight[j])
        # Stored again: where multiply and add are one elsewhere and not here, ends may differ.
        y[j] = encode(z - bound, like)
        refused[j] = as_bits(y[j]) != as_bits(encode(z + bound, like))


@compiled
def _scale_of(low: float, v: float, eps: float, depth: int) -> Any:
    """Return r, and K of (E15)."""
    w = v + eps
    return 1 / np.sqrt(w), SLACK * (error_of_r(error_of_w(low, v, w, depth)) + 6 * U)


@kernel
def forward(
    x: Coded,
    gamma: Coded,
    beta: Coded,
    eps: float,
    centred: Centred,
    y: Coded,
    kept: Numbers,
    status: States,
    scratch: Numbers,
) -> Any:
    """Write y, what is kept and what became of each row; return how many are not done.

    y must not overlap the others.
    """
    rows, size = x.shape
    scales, shifts = scratch[:COLUMNS], scratch[BETA * COLUMNS :][:COLUMNS]
    weights, numbers = scratch[WEIGHT * COLUMNS :][:COLUMNS], scratch[PARAMETERS:][: 3 * GROUP]
    lanes = scratch[PARAMETERS + 3 * GROUP :][: GROUP * LANES_OF_ROW]
    partial = scratch[PARAMETERS + GROUP * (3 + LANES_OF_ROW) :]
    last = kept.shape[1] - 1
    share = 0.0 if centred is None else share_of_gamma(size)  # (R1)
    clear_last_segment(partial)
    count = 0
    for start in range(-GROUP, rows, GROUP):
        following = min(rows - start - GROUP, GROUP)  # rows of the next group
        for k in range(following):
            numbers[k] = near_mean(x[start + GROUP + k], centred)
        for left in range(0, size, COLUMNS):
            right = min(left + COLUMNS, size)
            if start >= 0 and not widen_parameters(
                gamma[left:right], beta[left:right], share, y[0], scales, shifts, weights
            ):
                return SPECIAL
            for k in range(GROUP):
                i = start + k
                if 0 <= i < rows and kept[i, last] > 0:
                    near, low, _ = kept_numbers(kept[i], centred)
                    if write_y(
                        x[i, left:right],
                        near,
                        low,
                        numbers[GROUP + k],
                        numbers[2 * GROUP + k],
                        scales,
                        shifts,
                        weights,
                        y[i, left:right],
                    ):
                        status[i] = REFUSED
                if k < following:
                    add_moments(
                        x[i + GROUP, left:right],
                        numbers[k],
                        left == 0,
                        lanes[k * LANES_OF_ROW :],
                        partial,
                    )
        if start >= 0:
            for i in range(start, min(start + GROUP, rows)):
                count += status[i] != DONE
                if kept[i, last] == 0 and not write_constant(beta, y[i]):
                    return SPECIAL
        for k in range(following):
            i = start + GROUP + k
            of_row = lanes[k * LANES_OF_ROW :]
            near, low, v = statistics_of(x[i], numbers[k], centred, of_row, partial)
            status[i] = DONE
            if not v + eps > 0:
                status[i] = UNDEFINED
                near = low = v = np.nan
            keep(kept[i], near, low, v, centred)
            r, bound = _scale_of(low, v, eps, depth_of_sum(size))
            numbers[GROUP + k], numbers[2 * GROUP + k] = r, bound
    return count


@kernel
def statistics(x: Coded, centred: Centred, kept: Numbers, scratch: Numbers) -> Any:
    """Find anew what forward keeps; return how many rows do not have the mean that was kept.

    Where rows are not centred, not the mean square.
    """
    lanes, partial = scratch[:LANES_OF_ROW], scratch[LANES_OF_ROW:]
    clear_last_segment(partial)
    changed = 0
    for i in range(x.shape[0]):
        if kept[i, 0] == kept[i, 0]:
            near, low, v = row_statistics(x[i], centred, lanes, partial)
            if centred is None:
                changed += not abs(v - kept[i, 0]) <= 2.0**-40 * v
            else:
                difference = abs((near - kept[i, 0]) + (low - kept[i, 1]))
                changed += not difference <= 2.0**-40 * np.sqrt(v) + 2.0**-1000
            keep(kept[i], near, low, v, centred)
    return changed
