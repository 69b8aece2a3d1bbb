"""Fast mode, forward: rows of float64 numbers in float64.

Beside each piece of a row that is written, the sums of the next row are taken: so memory is read
while it is written. Rows that are too large or too small for their squares are refused: pairs do
them. That depends on the row and the parameters alone.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.elements.vectors import prefer_wide_vectors
from truenorm.kernels.fused.compiled.narrow.forward import SPECIAL
from truenorm.kernels.fused.compiled.narrow.parameters import write_constant
from truenorm.kernels.fused.compiled.plain.statistics import (
    LANES_OF_ROW,
    add_moments,
    are_finite,
    are_moderate,
    inverse_deviation,
    is_in_range,
    near_mean,
    statistics_of,
)
from truenorm.kernels.fused.compiled.rows.kept import keep
from truenorm.kernels.fused.compiled.rows.sums import SPACE, clear_last_segment
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import (
    COLUMNS,
    DONE,
    REFUSED,
    UNDEFINED,
    Centred,
    Numbers,
    States,
)

__all__ = ["forward"]


@compiled(fastmath={"contract"})
def _write_y(
    x: Numbers, near: float, low: float, r: float, gamma: Numbers, beta: Numbers, y: Numbers
) -> None:
    """Write y of some columns of a row."""
    prefer_wide_vectors()
    for j in range(x.shape[0]):
        c = (x[j] - near) - low
        y[j] = c * (r * gamma[j]) + (beta[j] + 0.0)  # a zero is +0, also for beta = -0


@compiled
def _is_constant(x: Numbers, centred: Centred) -> Any:
    """Return whether a row is constant; if not centred, whether it is zero."""
    first = x[0]
    if centred is None:
        first = 0.0
    differs = False
    for j in range(x.shape[0]):
        differs |= x[j] != first
    return not differs


@compiled
def _state(x: Numbers, v: float, eps: float, centred: Centred) -> Any:
    """Return what becomes of a row. Squares that underflow are not what is zero."""
    if is_in_range(v) and is_in_range(v + eps):
        return DONE
    if v == 0 and _is_constant(x, centred):
        return DONE if eps > 0 else UNDEFINED
    return REFUSED


@kernel
def forward(
    x: Numbers,
    gamma: Numbers,
    beta: Numbers,
    eps: float,
    centred: Centred,
    y: Numbers,
    kept: Numbers,
    status: States,
    scratch: Numbers,
) -> Any:
    """Write y, what is kept and what became of each row; return how many are not done.

    If gamma is too large or too small, or beta not finite, SPECIAL, and nothing is written. y must
    not overlap the others.
    """
    if not (are_moderate(gamma) and are_finite(beta)):
        return SPECIAL
    rows, size = x.shape
    lanes, partial = scratch[:LANES_OF_ROW], scratch[LANES_OF_ROW:][:SPACE]
    clear_last_segment(partial)
    count = 0
    shift = 0.0
    for i in range(-1, rows):
        near, low, v, r = 0.0, 0.0, 0.0, 0.0
        if i >= 0:
            near, low, v = statistics_of(x[i], shift, centred, lanes, partial)
            status[i] = _state(x[i], v, eps, centred)
            if status[i] == UNDEFINED:
                near = low = v = np.nan
            keep(kept[i], near, low, v, centred)
            r = inverse_deviation(v, eps)
            count += status[i] != DONE
        has_spread = i >= 0 and v > 0 and status[i] == DONE
        following = i + 1 < rows
        if following:
            shift = near_mean(x[i + 1], centred)
            fill(lanes, 0.0)
        for left in range(0, size, COLUMNS):
            right = min(left + COLUMNS, size)
            if has_spread:
                px, py = x[i, left:right], y[i, left:right]
                _write_y(px, near, low, r, gamma[left:right], beta[left:right], py)
            if following:
                add_moments(x[i + 1, left:right], shift, lanes, partial)
        if i >= 0 and v == 0 and status[i] == DONE:
            write_constant(beta, y[i])
    return count
