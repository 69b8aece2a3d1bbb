"""Fast mode: mean and variance of a row, by float64 sums in any order.

x is shifted by its first element. That is in the row, so its distance from the mean is at most
sqrt(D) spreads, and at D = 2**13 no more than 13 bits of 53 cancel in mean(d**2) - mean(d)**2; of
longer rows the sweep is made again from the mean where it would be more.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode
from truenorm.kernels.fused.compiled.elements.vectors import add_in_any_order, prefer_wide_vectors
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Centred, Coded

__all__ = ["moments", "shift_of", "statistics_of"]

FAR = 2.0**26
"""Over D: how many times the variance the square of the distance from the shift may be."""


@compiled
def shift_of(x: Coded, centred: Centred) -> Any:
    """Return what is subtracted from a row before it is summed."""
    return 0.0 if centred is None else decode(x[0])


@compiled(fastmath={"contract"})
def moments(x: Coded, shift: float) -> Any:
    """Return the sums of d = x - shift and of its square."""
    prefer_wide_vectors()
    total, square = 0.0, 0.0
    for j in range(x.shape[0]):
        d = decode(x[j]) - shift
        total = add_in_any_order(total, d)
        square = add_in_any_order(square, d * d)
    return total, square


@compiled
def statistics_of(x: Coded, centred: Centred, total: float, square: float) -> Any:
    """Return the mean of a row as a pair, and its variance; NaN for a row that is not finite.

    The variance is 0 for constant rows only. Of a row that is not centred, zeros for the mean, and
    its mean square.
    """
    size = x.shape[0]
    if centred is None:
        return 0.0, 0.0, square / size if square < np.inf else np.nan
    near, low = decode(x[0]), total / size
    v = square / size - low * low
    if not low * low * size <= FAR * v and square > 0:
        near = np.float64(np.float32(near + low))
        total, square = moments(x, near)
        low = total / size
        v = square / size - low * low
    return near, low, v if square < np.inf else np.nan
