"""Fast mode, forward: rows of at most float32 in float32, with their sums in float64.

Beside each piece of a row that is written, the sums of the next row are taken: so memory is read
while it is written. Rows whose spread leaves the range of 2**+-30, or 1/r that of 2**-30 to 2**40,
and those with a result that is zero, whose sign is for float64 to say, or not finite, are done by
the kernel of level 1 without its test: that depends on the row and the parameters alone.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode_single, encode_single
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.elements.vectors import prefer_wide_vectors
from truenorm.kernels.fused.compiled.narrow.forward import SPECIAL, write_y
from truenorm.kernels.fused.compiled.narrow.parameters import widen_parameters, write_constant
from truenorm.kernels.fused.compiled.rows.kept import keep, kept_numbers
from truenorm.kernels.fused.compiled.single.moments import moments, shift_of, statistics_of
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import (
    BETA,
    COLUMNS,
    DONE,
    UNDEFINED,
    WEIGHT,
    Centred,
    Coded,
    Element,
    Numbers,
    States,
)

__all__ = ["forward", "is_easy"]


@compiled
def is_easy(v: float, eps: float) -> Any:
    """Return whether nothing that float32 computes of a row comes near the ends of its range."""
    return 2.0**-60 < v < 2.0**60 and 2.0**-60 < v + eps < 2.0**80


@compiled(fastmath={"contract"})
def _write_single(
    x: Coded, high: Element, low: Element, r: Element, gamma: Coded, beta: Coded, y: Coded
) -> Any:
    """Write y of a row, and return whether some of it is zero or not finite."""
    prefer_wide_vectors()
    like = y[0]
    found = np.uint32(0)
    for j in range(x.shape[0]):
        c = (decode_single(x[j]) - high) - low
        z = c * (r * decode_single(gamma[j])) + decode_single(beta[j])
        y[j] = encode_single(z, like)
        # The magnitudes of zero, of infinity and of NaN, less one, are the largest.
        size = np.uint32(np.float32(z).view(np.uint32) & np.uint32(0x7FFFFFFF)) - np.uint32(1)
        found = np.uint32(found | np.uint32(np.uint32(size) >= np.uint32(0x7F7FFFFF)))
    return found != 0


@compiled
def _write_in_float64(
    x: Coded,
    kept: Numbers,
    eps: float,
    centred: Centred,
    gamma: Coded,
    beta: Coded,
    y: Coded,
    scratch: Numbers,
) -> Any:
    """Write y of a row by the kernel of level 1, and return whether the parameters are finite."""
    near, low, v = kept_numbers(kept, centred)
    r = 1 / np.sqrt(v + eps)
    scales, shifts, weights = scratch, scratch[BETA * COLUMNS :], scratch[WEIGHT * COLUMNS :]
    for left in range(0, x.shape[0], COLUMNS):
        right = min(left + COLUMNS, x.shape[0])
        if not widen_parameters(
            gamma[left:right], beta[left:right], 0.0, y, scales, shifts, weights
        ):
            return False
        write_y(x[left:right], near, low, r, 0.0, scales, shifts, weights, y[left:right])
    return True


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
    last = kept.shape[1] - 1
    count = 0
    total, square = 0.0, 0.0
    for i in range(-1, rows):
        following = i + 1 < rows
        high, rest, r = np.float32(0), np.float32(0), np.float32(0)
        easy, hard = False, False
        if i >= 0:
            near, low, v = statistics_of(x[i], centred, total, square)
            keep(kept[i], near, low, v, centred)
            easy, hard = is_easy(v, eps), v > 0
            high = np.float32(near + low)
            rest = np.float32((near - high) + low)
            r = np.float32(1 / np.sqrt(v + eps))
        shift = shift_of(x[i + 1], centred) if following else 0.0
        total, square = 0.0, 0.0
        if easy:
            hard = False
        for left in range(0, size, COLUMNS):
            right = min(left + COLUMNS, size)
            if easy:
                hard |= _write_single(
                    x[i, left:right],
                    high,
                    rest,
                    r,
                    gamma[left:right],
                    beta[left:right],
                    y[i, left:right],
                )
            if following:
                more, squares = moments(x[i + 1, left:right], shift)
                total += more
                square += squares
        if i < 0:
            continue
        status[i] = DONE
        if not kept[i, last] + eps > 0:
            fill(kept[i], np.nan)
            status[i] = UNDEFINED
            count += 1
        elif hard:
            if not _write_in_float64(x[i], kept[i], eps, centred, gamma, beta, y[i], scratch):
                return SPECIAL
        elif kept[i, last] == 0 and not write_constant(beta, y[i]):
            return SPECIAL
    return count
