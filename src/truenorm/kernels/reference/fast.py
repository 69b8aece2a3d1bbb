"""Fast mode for types of at most float32.

Forward normalizes rows in float32, with their sums in float64. The variance is the mean square
minus the squared mean. In float64 that has an error of 2**-26 if the variance is at least 2**-20
of the mean square. Other rows, and those whose spread or 1/r is outside 2**+-40, are difficult and
computed in float64; this depends on the row alone.

The mean is a pair, so the error does not grow with the condition number. Sums over rows are taken
over blocks that depend on the row index alone, in order. Bits depend on the backend and the
machine, not on threads or on the rest of the batch.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT32, FloatFormat
from truenorm.kernels.call import Call
from truenorm.kernels.reference.tier1 import Scratch, Statistics, column_sums
from truenorm.kernels.rounding import round_to
from truenorm.kernels.rows import Stored, widen
from truenorm.kernels.special import clear_not_finite, no_spread

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Flags = NDArray[np.bool_]

ONE_MEAN = 2**14
"""Up to this row length one float64 is enough for the mean of float32 numbers: its error is 2**-53
of itself, at most 2**-29*sqrt(D) of the spread, and the bound allows 2**-21."""


class Parameters(NamedTuple):
    """gamma and beta, where no product or sum with a normalized element can overflow."""

    gamma: Float32
    beta: Float32

    @classmethod
    def of(cls, call: Call) -> "Parameters | None":
        """Return them in float32, or None if they are too large."""
        if max(np.abs(call.gamma.finite).max(), np.abs(call.beta.finite).max()) > 2.0**60:
            return None
        return cls(
            call.gamma.finite.astype(np.float32),
            _positive_zeros(call.beta.finite).astype(np.float32),
        )


def _positive_zeros(beta: Float64) -> Float64:
    """Return beta without -0: an exact zero of y is +0."""
    return beta + 0.0


def statistics(x: Float32, call: Call, scratch: Scratch) -> tuple[Float64, Flags]:
    """Return the mean as a pair and the variance of each row, and which rows are easy."""
    size = x.shape[1]
    wide = scratch.like(x, "x")
    np.copyto(wide, x)
    mean = np.zeros((len(x), 1))
    if call.norm.centred:
        mean = wide.sum(axis=1, keepdims=True) / size
    wide *= wide
    mean_square = wide.sum(axis=1, keepdims=True) / size
    v = mean_square - mean * mean
    w = v + call.eps
    easy = (v > 2.0**-20 * mean_square) & (v > 2.0**-80) & (w < 2.0**80)
    high = mean.astype(np.float32).astype(np.float64)
    return np.hstack([high, mean - high, v]), easy[:, 0]


def normalize(
    x: Float32, moments: Float64, parameters: Parameters, eps: float, scratch: Scratch
) -> Float32:
    """Return gamma*(x - mean)*r + beta."""
    high, low = moments[:, :1].astype(np.float32), moments[:, 1:2].astype(np.float32)
    r = (1 / np.sqrt(moments[:, 2:] + eps)).astype(np.float32)
    y: Float32 = scratch.like(x, "y").view(np.float32).reshape(2, *x.shape)[0]
    np.subtract(x, high, out=y)
    y -= low
    y *= r
    y *= parameters.gamma
    y += parameters.beta
    return y


def rounded(values: Float32, target: FloatFormat) -> Stored:
    """Round float32 numbers to a type."""
    return values if target is FLOAT32 else round_to(widen(values, FLOAT32), target)


def difficult_rows(x: Float64, call: Call) -> tuple[Stored, Float64]:
    """Compute y and the saved statistics of difficult rows in float64. Overwrites x."""
    size = x.shape[1]
    undefined = clear_not_finite(x) | no_spread(x, call.eps, call.norm)
    high, low = np.zeros((2, len(x), 1))
    if call.norm.centred:
        high = (x.sum(axis=1, keepdims=True) / size).astype(np.float32).astype(np.float64)
        x -= high
        low = x.sum(axis=1, keepdims=True) / size
    v = (x * x).sum(axis=1, keepdims=True) / size - low * low
    x -= low
    x *= 1 / np.sqrt(v + call.eps)
    x *= call.gamma.finite
    x += _positive_zeros(call.beta.finite)
    saved = np.hstack([high, low, v])
    saved[undefined] = np.nan
    return round_to(x, call.x_format), saved


class Gradient(NamedTuple):
    """Results of `gradient` for a block."""

    dx: Float64
    """Not multiplied by r yet: the caller does that while it writes the result."""
    r: Float64
    dgamma: Float64
    moved: Flags
    """Rows whose mean differs from the saved one by more than rounding."""


def gradient(dy: Float64, x: Float64, saved: Float64, call: Call, scratch: Scratch) -> Gradient:
    """Compute dx of the rows and their share of dgamma in float64. Overwrites x."""
    centred, eps = call.norm.centred, call.eps
    size = x.shape[1]
    high, low, v = Statistics.of_saved(saved)
    w = v + eps
    r = 1 / np.sqrt(w)
    c = x
    if size <= ONE_MEAN:
        c -= high + low
    else:
        c -= high
        c -= low
    explained = size * size * 2.0**-52 * (np.sqrt(v) + np.abs(low) + np.abs(high))
    product = scratch.like(x, "product")
    if centred:
        moved = ~(np.abs(c.sum(axis=1, keepdims=True)) <= explained)
    else:
        square = np.multiply(c, c, out=product).sum(axis=1, keepdims=True) / size
        moved = ~(np.abs(square - v) <= size * 2.0**-52 * v)
    g = np.multiply(dy, call.gamma.finite, out=scratch.like(x, "g"))
    # Not by einsum, whose bits depend on alignment.
    np.multiply(g, c, out=product)
    q = product.sum(axis=1, keepdims=True) / size / w
    if centred and size == 2:
        g = (g - g[:, ::-1]) * (eps / w / 2) + 0.0  # (D24)
    else:
        a = g.sum(axis=1, keepdims=True) / size if centred else np.zeros_like(r)
        g -= np.where(a == 0, -0.0, a)  # subtracting -0 makes +0 of -0
        g -= np.multiply(c, q, out=product)
    c *= r
    c *= dy
    return Gradient(g, r, block_sum(c), moved[:, 0])


def block_sum(terms: Float64) -> Float64:
    """Return the sums of columns. NumPy adds row after row, which is accurate for 512 rows."""
    return terms.sum(axis=0) if len(terms) <= 512 else column_sums(terms)
