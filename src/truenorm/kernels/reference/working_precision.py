"""Level 1: rows in float64 with a bound, for x, gamma and beta of at most float32.

Every result z comes with a bound E on its error; where z - E and z + E round to the same number,
that is the correctly rounded result (Ziv's rounding test), and elsewhere the element is refused
and goes to the next level. The bounds are derived in docs/error-analysis.md, whose equations the
comments cite. Nothing here over- or underflows: float32 numbers and their products with each
other and with r lie well within the range of float64.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.reference.sums import column_sums, depth_of_sum, row_sums
from truenorm.kernels.rounding import Tested, round_to, same_roundings

__all__ = ["ColumnTerms", "Gradient", "Statistics", "backward", "forward", "statistics"]

Float64 = NDArray[np.float64]

U = 2.0**-53
SLACK = 1.01  # products of bounds, and the rounding of the bounds themselves


class Statistics(NamedTuple):
    """What is known of each row; arrays of shape (rows, 1). v is 0 for constant rows only."""

    mean_high: Float64
    mean_low: Float64
    v: Float64

    @property
    def spread(self) -> Float64:
        """The root mean square of x - mean_high."""
        return np.sqrt(self.v + self.mean_low * self.mean_low)


class Bounds(NamedTuple):
    """Errors of the statistics of each row: (E3), (E4), (E5)."""

    mean: Float64
    w: Float64
    r: Float64


class ColumnTerms(NamedTuple):
    """A block's share of dgamma, with a bound on its error."""

    total: Float64
    bound: Float64


class Gradient(NamedTuple):
    """What `backward` returns for a block."""

    dx: Tested
    dgamma: ColumnTerms
    drift: Float64
    """The mean of the centred row over what rounding can make of it: above 1, x has changed."""


def statistics(x: Float64) -> tuple[Statistics, Float64]:
    """Return the statistics of the rows, and x - mean_high."""
    size = x.shape[1]
    mean = row_sums(x) / size
    high = mean.astype(np.float32).astype(np.float64)
    d = x - high
    low = row_sums(d) / size  # (E1)
    v = row_sums(d * d) / size - low * low  # (E2)
    return Statistics(high, low, v), d


def bounds_of(found: Statistics, w: Float64, size: int) -> Bounds:
    """Bound the errors of the mean, of w and of r, the latter two relative."""
    h = depth_of_sum(size)
    s = found.spread
    mean = (h + 2) * U * s  # (E3)
    variance = (h + 6) * U * s * s + 2 * np.abs(found.mean_low) * mean
    w_bound = variance / w + U  # (E4)
    return Bounds(mean, w_bound, w_bound / 2 + 2 * U)  # (E5)


def rounding_test(z: Float64, bound: Float64, target: FloatFormat) -> Tested:
    """Round z where z - bound and z + bound agree; an exact zero is +0."""
    lower = round_to((z - bound) + 0.0, target)
    upper = round_to((z + bound) + 0.0, target)
    return same_roundings(lower, upper)


def forward(
    x: Float64, gamma: Float64, beta: Float64, eps: float, target: FloatFormat
) -> tuple[Tested, Statistics]:
    """Return y of the rows, and their statistics."""
    found, d = statistics(x)
    w = found.v + eps
    r = 1 / np.sqrt(w)
    error = bounds_of(found, w, x.shape[1])
    centring = error.mean + U * found.spread  # (E6), its part that is the same for all elements
    t = d
    t -= found.mean_low
    t *= r
    t *= gamma
    z = t + beta
    bound = np.abs(t, out=t)
    bound *= SLACK * (error.r + 6 * U)
    bound += np.abs(gamma) * (SLACK * r * centring)
    bound += (SLACK * 2 * U) * np.abs(beta)  # (E7)
    return rounding_test(z, bound, target), found


def backward(
    dy: Float64,
    x: Float64,
    found: Statistics,
    gamma: Float64,
    eps: float,
    target: FloatFormat,
) -> Gradient:
    """Return dx of the rows and their share of dgamma."""
    size = x.shape[1]
    h = depth_of_sum(size)
    w = found.v + eps
    r = 1 / np.sqrt(w)
    s = found.spread
    error = bounds_of(found, w, size)
    centring = error.mean + U * s
    c = (x - found.mean_high) - found.mean_low
    drift = np.abs(row_sums(c)) / (size * (error.mean + (h + 4) * U * s) + 2.0**-1000)

    g = dy * gamma  # exact: 24 bits times 24 bits
    a = row_sums(g) / size
    g_rms = np.sqrt(row_sums(g * g) / size)
    q = row_sums(g * c) / size / w
    a_bound = (h + 1) * U * g_rms  # (E8)
    q_size = np.abs(q)
    q_bound = ((h + 4) * U * g_rms * s + error.mean * np.abs(a)) / w + q_size * (
        error.w + U
    )  # (E9)
    if size == 2:
        # (D24): the general form cancels completely. Errors are relative, (E11).
        z = r * (eps / w) * (g - g[:, ::-1]) / 2
        bound = np.abs(z) * (SLACK * (error.r + error.w + 8 * U)) + 2.0**-1000
    else:
        g -= a
        z = g - c * q
        z *= r
        bound = np.abs(g, out=g)
        bound *= SLACK * r * (error.r + 4 * U)
        bound += SLACK * r * (a_bound + q_size * centring)
        bound += np.abs(c) * (SLACK * r * (q_bound + q_size * (error.r + 6 * U)))  # (E10)
    dx = rounding_test(z, bound, target)

    c *= r
    c *= dy
    total = column_sums(c)
    in_column = depth_of_sum(len(c)) + 2
    weights = SLACK * np.hstack([r * centring, error.r + (4 + in_column) * U])
    share = weights[:, 0] @ np.abs(dy) + weights[:, 1] @ np.abs(c, out=c)  # (E12)
    return Gradient(dx, ColumnTerms(total, share), drift)
