"""Fast mode: the last bit for speed, for types of at most float32.

Forward has rows in float32 with their sums in float64: half the memory traffic, where that is
enough. The variance is the mean of squares less the square of the mean. In float64 that is good to
2**-26 for a row whose variance is at least 2**-20 of its mean square. Other rows, and those whose
spread or 1/r leaves the range of 2**+-40, are not easy and are done otherwise: that depends on the
row alone.

The mean is a pair, so the error does not grow with the condition number. Sums over rows are taken
over blocks that depend on the row's index alone, one after the other: bits do not depend on how
the batch is split into calls, nor on anything but the backend and the machine.
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
"""Up to this row length the mean of float32 numbers in one float64 keeps the bound: it is off by
2**-53 of itself, at most 2**-29*sqrt(D) of the spread, and 2**-21 is allowed."""


class Parameters(NamedTuple):
    """gamma and beta, where no product or sum with a normalized element can overflow."""

    gamma: Float32
    beta: Float32

    @classmethod
    def of(cls, call: Call) -> "Parameters | None":
        """Return them in float32, or None if they are too large."""
        if max(np.abs(call.gamma).max(), np.abs(call.beta).max()) > 2.0**60:
            return None
        return cls(call.gamma.astype(np.float32), _positive_zeros(call.beta).astype(np.float32))


def _positive_zeros(beta: Float64) -> Float64:
    """Return beta without -0: an exact zero is +0, also where beta is -0."""
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


def rounded(values: Float32, target: FloatFormat) -> Stored:
    """Round float32 numbers to a type."""
    return values if target is FLOAT32 else round_to(widen(values, FLOAT32), target)


def difficult_rows(x: Float64, call: Call) -> tuple[Stored, Float64]:
    """Return y and what is saved, in float64: rows that are not finite, far off or far out."""
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
    x *= call.gamma
    x += _positive_zeros(call.beta)
    saved = np.hstack([high, low, v])
    saved[undefined] = np.nan
    return round_to(x, call.x_format), saved


class Gradient(NamedTuple):
    """What `gradient` returns for a block."""

    dx: Float64
    """Not multiplied by r yet, which may be done on the way to memory."""
    r: Float64
    dgamma: Float64
    moved: Flags
    """Which rows, centred by what was saved, have another mean than rounding explains."""


def gradient(dy: Float64, x: Float64, saved: Float64, call: Call, scratch: Scratch) -> Gradient:
    """Return dx of the rows and their share of dgamma, in float64; x is used up."""
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
    g = np.multiply(dy, call.gamma, out=scratch.like(x, "g"))
    # Not by einsum, whose bits depend on alignment.
    np.multiply(g, c, out=product)
    q = product.sum(axis=1, keepdims=True) / size / w
    if centred and size == 2:
        g = (g - g[:, ::-1]) * (eps / w / 2) + 0.0  # (D24)
    else:
        a = g.sum(axis=1, keepdims=True) / size if centred else np.zeros_like(r)
        g -= np.where(a == 0, -0.0, a)  # which makes +0 of -0
        g -= np.multiply(c, q, out=product)
    c *= r
    c *= dy
    return Gradient(g, r, block_sum(c), moved[:, 0])


def block_sum(terms: Float64) -> Float64:
    """Return the sums of columns; NumPy adds row after row, which is good for 512 of them."""
    return terms.sum(axis=0) if len(terms) <= 512 else column_sums(terms)
