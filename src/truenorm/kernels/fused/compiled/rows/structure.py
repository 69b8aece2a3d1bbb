"""Level 0: what is exact by structure, for elements that a rounding test refused."""

import math
from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode
from truenorm.kernels.fused.compiled.pairs.arithmetic import two_product
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Centred, Coded, Flags

__all__ = ["accept_beta_at_mean"]


@compiled
def _accept_beta_at_zero(x: Coded, constant: Coded, y: Coded, refused: Flags) -> Any:
    """Where a refused element of a row that is not centred is zero, y is beta rounded."""
    left = 0
    for j in range(x.shape[0]):
        if refused[j] and decode(x[j]) == 0:
            y[j] = constant[j]
            refused[j] = False
        left += refused[j]
    return left


@compiled
def accept_beta_at_mean(
    x: Coded, centred: Centred, constant: Coded, y: Coded, refused: Flags
) -> Any:
    """Where a refused element equals the mean of its row, y is beta rounded.

    Returns how many elements are still refused. An element equals the mean if D*x = sum(x). If all
    x are multiples of some 2**k, and sum|x| < 2**(k + 53), then every partial sum is a float64, so
    the sum is exact in any order; else nothing is known.
    """
    size = x.shape[0]
    left = 0
    for j in range(size):
        left += refused[j]
    if left == 0:
        return 0
    if centred is None:
        return _accept_beta_at_zero(x, constant, y, refused)
    total, absolute = 0.0, 0.0
    for j in range(size):
        total += decode(x[j])
        absolute += abs(decode(x[j]))
    exponent = 53 - math.frexp(2 * absolute)[1]
    if not -1000 < exponent < 1000:
        return left
    unit = np.ldexp(1.0, exponent)
    for j in range(size):
        in_units = decode(x[j]) * unit
        if np.rint(in_units) != in_units:
            return left
    for j in range(size):
        if refused[j]:
            high, low = two_product(np.float64(size), decode(x[j]))
            if high == total and low == 0:
                y[j] = constant[j]
                refused[j] = False
                left -= 1
    return left
