"""Rows in float32 with their sums in float64: half the memory traffic, where that is enough.

The variance is the mean of squares less the square of the mean. In float64 that is good to 2**-26
for a row whose variance is at least 2**-20 of its mean square. Other rows, and those whose spread
or 1/r leaves the range of 2**+-40, are not easy and are done otherwise: that depends on the row
alone.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.reference.scratch import Scratch

__all__ = ["Parameters", "normalize", "statistics"]

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


class Parameters(NamedTuple):
    """gamma and beta, where no product or sum with a normalized element can overflow."""

    gamma: Float32
    beta: Float32

    @classmethod
    def of(cls, gamma: Float64, beta: Float64) -> "Parameters | None":
        """Return them in float32, or None if they are too large."""
        if max(np.abs(gamma).max(), np.abs(beta).max()) > 2.0**60:
            return None
        return cls(gamma.astype(np.float32), beta.astype(np.float32))


def statistics(x: Float32, eps: float, scratch: Scratch) -> tuple[Float64, NDArray[np.bool_]]:
    """Return the mean as a pair and the variance of each row, and which rows are easy."""
    size = x.shape[1]
    wide = scratch.like(x, "x")
    np.copyto(wide, x)
    mean = wide.sum(axis=1, keepdims=True) / size
    wide *= wide
    mean_square = wide.sum(axis=1, keepdims=True) / size
    v = mean_square - mean * mean
    w = v + eps
    easy = (v > 2.0**-20 * mean_square) & (v > 2.0**-80) & (w < 2.0**80)
    high = mean.astype(np.float32).astype(np.float64)
    return np.hstack([high, mean - high, v]), easy[:, 0]


def normalize(
    x: Float32, found: Float64, parameters: Parameters, eps: float, scratch: Scratch
) -> Float32:
    """Return gamma*(x - mean)*r + beta."""
    high, low = found[:, :1].astype(np.float32), found[:, 1:2].astype(np.float32)
    r = (1 / np.sqrt(found[:, 2:] + eps)).astype(np.float32)
    y: Float32 = scratch.like(x, "y").view(np.float32).reshape(2, *x.shape)[0]
    np.subtract(x, high, out=y)
    y -= low
    y *= r
    y *= parameters.gamma
    y += parameters.beta
    return y
