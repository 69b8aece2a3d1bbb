"""Backward of a small call in one go: rows, sums over rows, and their rounding.

Nothing is allocated, so the sums are in scratch, and there is a largest size of rows.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.columns.column_sums import is_exact_sum
from truenorm.kernels.fused.compiled.elements.encoding import encode, layout
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.narrow.backward import BACKWARD, backward
from truenorm.kernels.fused.compiled.pairs.columns import round_columns
from truenorm.kernels.fused.compiled.plain.backward import PLAIN_BACKWARD
from truenorm.kernels.fused.compiled.plain.backward import backward as plain_backward
from truenorm.kernels.fused.compiled.single.backward import FAST_BACKWARD
from truenorm.kernels.fused.compiled.single.backward import backward as fast_backward
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import (
    DBETA_HIGH,
    DBETA_LOW,
    DGAMMA_BOUND,
    DGAMMA_HIGH,
    DGAMMA_LOW,
    SUMS,
    Centred,
    Coded,
    Numbers,
)

__all__ = [
    "LONGEST",
    "MOST",
    "SMALL",
    "small_backward",
    "small_fast_backward",
    "small_plain_backward",
]

LONGEST = 2**12
"""Elements of a row, at most."""

MOST = 2**10
"""Rows, at most."""

_SUMS = (SUMS + 2) * LONGEST
SMALL = max(BACKWARD, FAST_BACKWARD, PLAIN_BACKWARD) + _SUMS + LONGEST // 8 + MOST // 8
"""Scratch for a small call."""


@kernel
def small_backward(
    dy: Coded,
    x: Coded,
    kept: Numbers,
    gamma: Coded,
    eps: float,
    centred: Centred,
    dx: Coded,
    dgamma: Coded,
    dbeta: Coded,
    scratch: Numbers,
) -> Any:
    """Do backward, correct, and return whether all is done: if not, nothing may be.

    A gradient that is not wanted has no elements.
    """
    rows, size = x.shape
    space = scratch[BACKWARD:]
    sums = space[: SUMS * size].reshape((SUMS, size))
    exponents = space[SUMS * size : (SUMS + 1) * size].view(np.int64)
    bounds = space[(SUMS + 1) * size : (SUMS + 2) * size]
    flags = scratch[-MOST // 8 - LONGEST // 8 : -MOST // 8].view(np.bool_)
    states = scratch[-MOST // 8 :].view(np.uint8)
    fill(space[: (SUMS + 2) * size], 0.0)
    left, smallest, largest = backward(
        dy, x, kept, gamma, eps, centred, dx, sums, states, scratch[:BACKWARD]
    )
    mantissa, bias = layout(dy)
    if left != 0 or not is_exact_sum(smallest, largest, mantissa, bias, rows):
        return False
    if dgamma.shape[0] > 0:
        high, low, bound = sums[DGAMMA_HIGH], sums[DGAMMA_LOW], sums[DGAMMA_BOUND]
        if round_columns(high, low, bound, exponents, dgamma, flags) > 0:
            return False
    if dbeta.shape[0] > 0:
        round_columns(sums[DBETA_HIGH], sums[DBETA_LOW], bounds, exponents, dbeta, flags)
    return True


@kernel
def small_fast_backward(
    dy: Coded,
    x: Coded,
    kept: Numbers,
    gamma: Coded,
    eps: float,
    centred: Centred,
    dx: Coded,
    dgamma: Coded,
    dbeta: Coded,
    scratch: Numbers,
) -> Any:
    """Do the same in fast mode, for rows that have sums of their own."""
    size = x.shape[1]
    space = scratch[FAST_BACKWARD:]
    sums = space[: 2 * size].reshape((2, size))
    states = scratch[-MOST // 8 :].view(np.uint8)
    fill(space[: 2 * size], 0.0)
    if fast_backward(dy, x, kept, gamma, eps, centred, dx, sums, states, scratch) != 0:
        return False
    for j in range(dgamma.shape[0]):
        dgamma[j] = encode(sums[0, j], dgamma[0])
    for j in range(dbeta.shape[0]):
        dbeta[j] = encode(sums[1, j], dbeta[0])
    return True


@kernel
def small_plain_backward(
    dy: Numbers,
    x: Numbers,
    kept: Numbers,
    gamma: Numbers,
    eps: float,
    centred: Centred,
    dx: Numbers,
    dgamma: Coded,
    dbeta: Coded,
    scratch: Numbers,
) -> Any:
    """Do the same for float64 data."""
    size = x.shape[1]
    space = scratch[PLAIN_BACKWARD:]
    sums = space[: SUMS * size].reshape((SUMS, size))
    states = scratch[-MOST // 8 :].view(np.uint8)
    fill(space[: SUMS * size], 0.0)
    left, some_are_tiny = plain_backward(
        dy, x, kept, gamma, eps, centred, dx, sums, states, scratch[:PLAIN_BACKWARD]
    )
    if left != 0 or some_are_tiny:
        return False
    return _is_written(sums[DGAMMA_HIGH], sums[DGAMMA_LOW], dgamma) and _is_written(
        sums[DBETA_HIGH], sums[DBETA_LOW], dbeta
    )


@compiled
def _is_written(high: Numbers, low: Numbers, gradient: Coded) -> Any:
    """Write sums as they are, and return whether they are finite."""
    finite = True
    for j in range(gradient.shape[0]):
        total = high[j] + low[j]
        gradient[j] = encode(total, gradient[0])
        finite &= abs(total) < np.inf
    return finite
