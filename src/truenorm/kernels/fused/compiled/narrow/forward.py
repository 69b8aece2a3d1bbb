"""Level 1, forward: y of rows of at most float32, in float64 with the rounding test.

Rows are taken GROUP at a time: first the statistics of each, then the results, so many columns at
a time that their parameters stay in the nearest cache while they serve all rows of the group.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import as_bits, decode, encode
from truenorm.kernels.fused.compiled.elements.filling import copy
from truenorm.kernels.fused.compiled.elements.vectors import prefer_wide_vectors
from truenorm.kernels.fused.compiled.rows.statistics import (
    error_of_r,
    error_of_w,
    row_statistics,
)
from truenorm.kernels.fused.compiled.rows.sums import depth_of_sum
from truenorm.kernels.fused.compiling import compiled
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

__all__ = ["forward", "prepare", "refused_y", "statistics", "write_y"]


@compiled
def prepare(gamma: Numbers, beta: Numbers, columns: Numbers, constant: Coded) -> None:
    """Write gamma, beta and the weight of each column, and y of a constant row.

    The weight of a column is what (E15) adds to |z|: (E7), or (E14), is at most K*(|z| + |beta| +
    share*|gamma|) with K = 1.01*(rho_r + 6u), where share is the most that r*(delta_mu + u*s) can
    be of rho_r + 6u, whatever the spread. Where gamma = 0, y is beta rounded, and beta is put in
    its place that rounded: nothing is refused there.
    """
    depth = depth_of_sum(gamma.shape[0])
    share = (depth + 3) / (2 * np.sqrt(4.25 * (depth + 6)))
    like = constant[0]
    for j in range(gamma.shape[0]):
        shift = beta[j] + 0.0  # an exact zero is +0, also for beta = -0
        constant[j] = encode(shift, like)
        if gamma[j] == 0 and decode(constant[j]) != 0:  # a zero would lose its sign
            shift = decode(constant[j])
        columns[GAMMA, j] = gamma[j]
        columns[BETA, j] = shift
        columns[WEIGHT, j] = abs(shift) + share * abs(gamma[j])


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
    x: Coded, kept: Numbers, columns: Numbers, eps: float, y: Coded, refused: Flags
) -> None:
    """Write y of a row once more, and note which elements the rounding test refuses."""
    near, low, v = kept[0], kept[1], kept[2]
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


@compiled
def forward(
    x: Coded,
    columns: Numbers,
    constant: Coded,
    eps: float,
    centred: Centred,
    y: Coded,
    kept: Numbers,
    status: States,
    scratch: Numbers,
) -> Any:
    """Write y, what is kept and what became of each row; return how many are not done.

    `constant` is y of a constant row: beta, rounded.
    """
    rows, size = x.shape
    gamma, beta, weight = columns[GAMMA], columns[BETA], columns[WEIGHT]
    depth = depth_of_sum(size)
    scale, partial = scratch[: 2 * GROUP], scratch[2 * GROUP :]
    count = 0
    for start in range(0, rows, GROUP):
        stop = min(start + GROUP, rows)
        for i in range(start, stop):
            near, low, v = row_statistics(x[i], centred, partial)
            status[i] = DONE
            if not v + eps > 0:
                status[i] = UNDEFINED
                near = low = v = np.nan
            kept[i, 0], kept[i, 1], kept[i, 2] = near, low, v
            r, k = _scale_of(low, v, eps, depth)
            scale[2 * (i - start)], scale[2 * (i - start) + 1] = r, k
        for left in range(0, size, COLUMNS):
            right = min(left + COLUMNS, size)
            for i in range(start, stop):
                if kept[i, 2] > 0 and write_y(
                    x[i, left:right],
                    kept[i, 0],
                    kept[i, 1],
                    scale[2 * (i - start)],
                    scale[2 * (i - start) + 1],
                    gamma[left:right],
                    beta[left:right],
                    weight[left:right],
                    y[i, left:right],
                ):
                    status[i] = REFUSED
        for i in range(start, stop):
            count += status[i] != DONE
            if kept[i, 2] == 0 and status[i] == DONE:
                copy(y[i], constant)
    return count


@compiled
def statistics(x: Coded, centred: Centred, kept: Numbers, scratch: Numbers) -> Any:
    """Find anew what forward keeps; return how many rows do not have the mean that was kept.

    Where rows are not centred, not the mean square.
    """
    changed = 0
    for i in range(x.shape[0]):
        if kept[i, 0] == kept[i, 0]:
            near, low, v = row_statistics(x[i], centred, scratch)
            if centred is None:
                changed += not abs(v - kept[i, 2]) <= 2.0**-40 * v
            else:
                difference = abs((near - kept[i, 0]) + (low - kept[i, 1]))
                changed += not difference <= 2.0**-40 * np.sqrt(v) + 2.0**-1000
            kept[i, 0], kept[i, 1], kept[i, 2] = near, low, v
    return changed
