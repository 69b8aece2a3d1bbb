"""Fast mode, forward: rows of at most float32 in float32, with their sums in float64.

Rows whose spread leaves the range of 2**+-30, or 1/r that of 2**-30 to 2**40, and those with a
result of zero, whose sign is for float64 to say, are done by the kernel of level 1 without its
test: that depends on the row alone.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode_single, encode_single
from truenorm.kernels.fused.compiled.elements.filling import copy
from truenorm.kernels.fused.compiled.elements.vectors import prefer_wide_vectors
from truenorm.kernels.fused.compiled.narrow.forward import write_y
from truenorm.kernels.fused.compiled.rows.statistics import row_statistics
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import (
    BETA,
    DONE,
    GAMMA,
    UNDEFINED,
    WEIGHT,
    Centred,
    Coded,
    Element,
    Numbers,
    Singles,
    States,
)

__all__ = ["LARGEST", "forward", "is_easy"]

LARGEST = 2.0**60
"""Of gamma and beta that float32 rows can have."""


@compiled
def is_easy(v: float, eps: float) -> Any:
    """Return whether nothing that float32 computes of a row comes near the ends of its range."""
    return 2.0**-60 < v < 2.0**60 and 2.0**-60 < v + eps < 2.0**80


@compiled(fastmath={"contract"})
def _write_single(
    x: Coded, high: Element, low: Element, r: Element, gamma: Singles, beta: Singles, y: Coded
) -> Any:
    """Write y of a row, and return whether a zero is among it."""
    prefer_wide_vectors()
    like = y[0]
    zeros = np.int32(0)
    for j in range(x.shape[0]):
        c = (decode_single(x[j]) - high) - low
        z = c * (r * gamma[j]) + beta[j]
        y[j] = encode_single(z, like)
        zeros = np.int32(zeros | np.int32(z == 0))
    return zeros != 0


@compiled
def forward(
    x: Coded,
    columns: Numbers,
    constant: Coded,
    single: Numbers,
    eps: float,
    centred: Centred,
    y: Coded,
    kept: Numbers,
    status: States,
    scratch: Numbers,
) -> None:
    """Write y, what is kept and what became of each row.

    `single` has gamma and beta in float32; it is empty if they are too large for that.
    """
    gamma, beta, weight = columns[GAMMA], columns[BETA], columns[WEIGHT]
    for i in range(x.shape[0]):
        near, low, v = row_statistics(x[i], centred, scratch)
        if not v + eps > 0:
            kept[i, 0], kept[i, 1], kept[i, 2] = np.nan, np.nan, np.nan
            status[i] = UNDEFINED
            continue
        status[i] = DONE
        kept[i, 0], kept[i, 1], kept[i, 2] = near, low, v
        r = 1 / np.sqrt(v + eps)
        if v == 0:
            copy(y[i], constant)
            continue
        if single.shape[1] > 0 and is_easy(v, eps):
            high = np.float32(near + low)
            rest = np.float32((near - high) + low)
            if not _write_single(x[i], high, rest, np.float32(r), single[0], single[1], y[i]):
                continue
        write_y(x[i], near, low, r, 0.0, gamma, beta, weight, y[i])
