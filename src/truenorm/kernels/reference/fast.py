"""Fast mode: the last bit for speed. For types of at most float32, float64 without a test.

The mean is a pair, so the error does not grow with the condition number. Sums over rows are taken
over blocks that depend on the row's index alone, one after the other: bits do not depend on how
the batch is split into calls, nor on anything but the backend and the machine.
"""

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.backend import ColumnGradients, Parameter
from truenorm.kernels.double_double import two_sum
from truenorm.kernels.reference import correct
from truenorm.kernels.rounding import canonical_nan, round_to
from truenorm.kernels.rows import Rows, blocks_of_rows
from truenorm.kernels.storage import widen

__all__ = ["backward", "forward"]

Float64 = NDArray[np.float64]


def forward(x: Rows, gamma: Parameter, beta: Parameter, eps: float, y: Rows) -> Float64:
    """Write y, and return the mean as a pair and the variance of each row."""
    kept = np.empty((x.count, 3))
    for start, stop in blocks_of_rows(x.count, x.size, correct.BLOCK):
        values = widen(x.read(start, stop), x.target)
        size = x.size
        high = (values.sum(axis=1, keepdims=True) / size).astype(np.float32).astype(np.float64)
        values -= high
        low = values.sum(axis=1, keepdims=True) / size
        values -= low
        v = (values * values).sum(axis=1, keepdims=True) / size
        kept[start:stop] = np.hstack([high, low, v])
        values *= 1 / np.sqrt(v + eps)
        values *= gamma.values
        values += beta.values
        result = round_to(values, x.target)
        undefined = np.isnan(values)
        if undefined.any():
            result[undefined] = canonical_nan(x.target)
        y.write(start, stop, result)
    return kept


def backward(
    dy: Rows, x: Rows, kept: Float64, gamma: Parameter, beta: Parameter, eps: float, dx: Rows
) -> ColumnGradients:
    """Write dx, and return dgamma and dbeta."""
    size = x.size
    dgamma, dgamma_low, dbeta, dbeta_low = np.zeros((4, size))
    for start, stop in blocks_of_rows(x.count, size, correct.BLOCK):
        high, low, v = np.hsplit(kept[start:stop], 3)
        r = 1 / np.sqrt(v + eps)
        c = widen(x.read(start, stop), x.target)
        c -= high
        c -= low
        moved = np.abs(c.sum(axis=1, keepdims=True)) > size * size * 2.0**-52 * (
            np.sqrt(v) + np.abs(low)
        )
        if moved.any():
            raise RuntimeError(correct.X_CHANGED)
        slopes = widen(dy.read(start, stop), dy.target)
        g = slopes * gamma.values
        a = g.sum(axis=1, keepdims=True) / size
        q = (g * c).sum(axis=1, keepdims=True) / size / (v + eps)
        if size == 2:
            g = (g - g[:, ::-1]) * (eps / (v + eps) / 2)  # (D24)
        else:
            g -= a
            g -= c * q
        g *= r
        result = round_to(g, x.target)
        undefined = np.isnan(g)
        if undefined.any():
            result[undefined] = canonical_nan(x.target)
        dx.write(start, stop, result)
        c *= r
        c *= slopes
        dgamma, error = two_sum(dgamma, c.sum(axis=0))
        dgamma_low += error
        dbeta, error = two_sum(dbeta, slopes.sum(axis=0))
        dbeta_low += error
    return ColumnGradients(_finished(dgamma, dgamma_low, gamma), _finished(dbeta, dbeta_low, beta))


def _finished(high: Float64, low: Float64, parameter: Parameter) -> Float64 | None:
    """Return a sum rounded to its parameter's type; infinite sums have no low part."""
    if parameter.target is None:
        return None
    total = np.where(np.isfinite(high), high + low, high)
    total[np.isnan(total)] = np.nan
    return widen(round_to(total, parameter.target), parameter.target)
