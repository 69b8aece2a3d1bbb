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
from truenorm.kernels.reference.scratch import Scratch
from truenorm.kernels.rounding import canonical_nan, round_to
from truenorm.kernels.rows import Rows, blocks_of_rows
from truenorm.kernels.storage import widen

__all__ = ["backward", "forward"]

Float64 = NDArray[np.float64]


def forward(x: Rows, gamma: Parameter, beta: Parameter, eps: float, y: Rows) -> Float64:
    """Write y, and return the mean as a pair and the variance of each row."""
    kept = np.empty((x.count, 3))
    scratch = Scratch()
    finite = bool(np.isfinite(gamma.values).all() and np.isfinite(beta.values).all())
    for start, stop in blocks_of_rows(x.count, x.size, correct.BLOCK):
        stored = x.read(start, stop)
        c = widen(stored, x.target, scratch.like(stored, "x"))
        mean = c.sum(axis=1, keepdims=True) / x.size
        high = mean.astype(np.float32).astype(np.float64)
        c -= high
        low = c.sum(axis=1, keepdims=True) / x.size
        v = _row_products(c, c, scratch) / x.size - low * low
        kept[start:stop] = np.hstack([high, low, v])
        c -= low
        c *= 1 / np.sqrt(v + eps)
        c *= gamma.values
        plain = finite and bool((v + eps > 0).all())
        _write(y, start, stop, np.add, c, beta.values, plain=plain)
    return kept


def backward(
    dy: Rows, x: Rows, kept: Float64, gamma: Parameter, beta: Parameter, eps: float, dx: Rows
) -> ColumnGradients:
    """Write dx, and return dgamma and dbeta."""
    size = x.size
    dgamma, dgamma_low, dbeta, dbeta_low = np.zeros((4, size))
    scratch = Scratch()
    for start, stop in blocks_of_rows(x.count, size, correct.BLOCK):
        stored = x.read(start, stop)
        high, low, v = np.hsplit(kept[start:stop], 3)
        w = v + eps
        r = 1 / np.sqrt(w)
        c = widen(stored, x.target, scratch.like(stored, "x"))
        c -= high
        c -= low
        _check_mean(c, v, low)
        slopes = widen(dy.read(start, stop), dy.target, scratch.like(stored, "dy"))
        g = np.multiply(slopes, gamma.values, out=scratch.like(stored, "g"))
        q = _row_products(g, c, scratch) / size / w
        if size == 2:
            g = (g - g[:, ::-1]) * (eps / w / 2)  # (D24)
        else:
            g -= g.sum(axis=1, keepdims=True) / size
            g -= np.multiply(c, q, out=scratch.like(stored, "product"))
        _write(dx, start, stop, np.multiply, g, r, plain=bool(np.isfinite(q + r).all()))
        c *= r
        c *= slopes
        dgamma, error = two_sum(dgamma, c.sum(axis=0))
        dgamma_low += error
        dbeta, error = two_sum(dbeta, slopes.sum(axis=0))
        dbeta_low += error
    return ColumnGradients(_finished(dgamma, dgamma_low, gamma), _finished(dbeta, dbeta_low, beta))


def _check_mean(c: Float64, v: Float64, low: Float64) -> None:
    """Raise if the rows, centred by what was saved, have another mean than rounding explains."""
    size = c.shape[1]
    moved = np.abs(c.sum(axis=1, keepdims=True)) > size * size * 2.0**-52 * (
        np.sqrt(v) + np.abs(low)
    )
    if moved.any():
        raise RuntimeError(correct.X_CHANGED)


def _row_products(left: Float64, right: Float64, scratch: Scratch) -> Float64:
    """Return the sums of products along rows: not by einsum, whose bits depend on alignment."""
    product = np.multiply(left, right, out=scratch.like(left, "product"))
    total: Float64 = product.sum(axis=1, keepdims=True)
    return total


def _write(
    output: Rows,
    start: int,
    stop: int,
    last_step: np.ufunc,
    left: Float64,
    right: Float64,
    *,
    plain: bool,
) -> None:
    """Do the last step of a block straight into the output; if not plain, mind its NaN."""
    window = output.window(start, stop)
    if plain and window is not None:
        last_step(left, right, out=window, casting="same_kind")
        return
    values = last_step(left, right, out=left)
    result = round_to(values, output.target)
    result[np.isnan(values)] = canonical_nan(output.target)
    output.write(start, stop, result)


def _finished(high: Float64, low: Float64, parameter: Parameter) -> Float64 | None:
    """Return a sum rounded to its parameter's type; infinite sums have no low part."""
    if parameter.target is None:
        return None
    total = np.where(np.isfinite(high), high + low, high)
    total[np.isnan(total)] = np.nan
    return widen(round_to(total, parameter.target), parameter.target)
