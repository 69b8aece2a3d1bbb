"""Fast mode: the last bit for speed, for types of at most float32.

The mean is a pair, so the error does not grow with the condition number. Sums over rows are taken
over blocks that depend on the row's index alone, one after the other: bits do not depend on how
the batch is split into calls, nor on anything but the backend and the machine.
"""

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT32, FloatFormat
from truenorm.kernels.backend import ColumnGradients, Parameter
from truenorm.kernels.reference import correct, float32_rows
from truenorm.kernels.reference.columns import CompensatedSum
from truenorm.kernels.reference.scratch import Scratch
from truenorm.kernels.reference.sums import column_sums
from truenorm.kernels.rounding import canonical_nan, round_to
from truenorm.kernels.rows import Rows, blocks_of_rows
from truenorm.kernels.special import (
    SpecialSum,
    clear_undefined,
    finite_part,
    infinite_terms,
    no_spread,
    special_y,
)
from truenorm.kernels.storage import Stored, as_float32, widen

__all__ = ["backward", "forward"]

Float64 = NDArray[np.float64]


ONE_MEAN = 2**14
"""Up to this row length the mean of float32 numbers in one float64 keeps the bound: it is off by
2**-53 of itself, at most 2**-29*sqrt(D) of the spread, and 2**-21 is allowed."""


class ColumnTotal(CompensatedSum):
    """The sums of columns, with what becomes of those whose terms are not all finite."""

    def __init__(self, columns: int) -> None:
        super().__init__(columns)
        self.special = SpecialSum(columns)

    def rounded(self, target: FloatFormat | None) -> Float64 | None:
        """Return the sums rounded to a type; None if there is no one to have them."""
        if target is None:
            return None
        total = self.total
        total[np.isnan(total)] = np.nan  # in its one form
        self.special.apply(total)
        return widen(round_to(total, target), target)


def forward(x: Rows, gamma: Parameter, beta: Parameter, eps: float, y: Rows) -> Float64:
    """Write y, and return the mean as a pair and the variance of each row."""
    kept = np.empty((x.count, 3))
    scratch = Scratch()
    special = ~(np.isfinite(gamma.values) & np.isfinite(beta.values))
    usable_gamma = finite_part(gamma.values)
    usable_beta = finite_part(beta.values) + 0.0  # an exact zero is +0, also for beta = -0
    single = float32_rows.Parameters.of(usable_gamma, usable_beta)
    for start, stop in blocks_of_rows(x.count, x.size, correct.BLOCK):
        stored = x.read(start, stop)
        rows = as_float32(stored, x.target)
        by_rule = None
        if special.any():
            by_rule = special_y(
                finite_part(widen(stored, x.target)), gamma, beta, special, x.target
            )
        found, easy = float32_rows.statistics(rows, eps, scratch)
        kept[start:stop] = found
        if single is None:
            values, easy[:] = np.empty_like(rows), False
        else:
            values = float32_rows.normalize(rows, found, single, eps, scratch)
            easy &= values.all(axis=1)  # the sign of a zero is for float64 to say
        result = values if x.target is FLOAT32 else round_to(widen(values, FLOAT32), x.target)
        difficult = np.flatnonzero(~easy)
        if len(difficult):
            result[difficult], kept[start + difficult] = _difficult_rows(
                widen(rows[difficult], FLOAT32), usable_gamma, usable_beta, eps, x.target
            )
        if by_rule is not None:
            result[:, special] = by_rule
            result[np.isnan(kept[start:stop, 0])] = canonical_nan(x.target)
        y.write(start, stop, result)
    return kept


def _difficult_rows(
    x: Float64, gamma: Float64, beta: Float64, eps: float, target: FloatFormat
) -> tuple[Stored, Float64]:
    """Return y and what is kept, in float64: rows that are not finite, far off or far out."""
    size = x.shape[1]
    undefined = clear_undefined(x) | no_spread(x, eps)
    high = (x.sum(axis=1, keepdims=True) / size).astype(np.float32).astype(np.float64)
    x -= high
    low = x.sum(axis=1, keepdims=True) / size
    v = (x * x).sum(axis=1, keepdims=True) / size - low * low
    x -= low
    x *= 1 / np.sqrt(v + eps)
    x *= gamma
    x += beta
    kept = np.hstack([high, low, v])
    kept[undefined] = np.nan
    y = round_to(x, target)
    y[undefined] = canonical_nan(target)
    return y, kept


def backward(
    dy: Rows, x: Rows, kept: Float64, gamma: Parameter, beta: Parameter, eps: float, dx: Rows
) -> ColumnGradients:
    """Write dx, and return dgamma and dbeta."""
    size = x.size
    dgamma, dbeta = ColumnTotal(size), ColumnTotal(size)
    usable_gamma = finite_part(gamma.values)
    scratch = Scratch()
    for start, stop in blocks_of_rows(x.count, size, correct.BLOCK):
        stored = x.read(start, stop)
        high, low, v = np.hsplit(kept[start:stop], 3)
        w = v + eps
        r = 1 / np.sqrt(w)
        c = widen(stored, x.target, scratch.like(stored, "x"))
        slopes = widen(dy.read(start, stop), dy.target, scratch.like(stored, "dy"))
        no_dx = np.isnan(high[:, 0]) | (not np.isfinite(gamma.values).all())
        slopes_sum = _block_sum(slopes)
        if not np.isfinite(slopes_sum).all():
            dbeta.special.add(slopes)
            dgamma.special.add(infinite_terms(slopes, finite_part(c)))
            no_dx |= ~np.isfinite(slopes).all(axis=1)
            slopes = finite_part(slopes)
            slopes_sum = _block_sum(slopes)
        if size <= ONE_MEAN:
            c -= high + low
        else:
            c -= high
            c -= low
        _check_mean(c, high, low, v)
        g = np.multiply(slopes, usable_gamma, out=scratch.like(stored, "g"))
        q = _row_products(g, c, scratch) / size / w
        if size == 2:
            g = (g - g[:, ::-1]) * (eps / w / 2) + 0.0  # (D24)
        else:
            a = g.sum(axis=1, keepdims=True) / size
            g -= np.where(a == 0, -0.0, a)  # which makes +0 of -0
            g -= np.multiply(c, q, out=scratch.like(stored, "product"))
        window = dx.window(start, stop)
        if window is not None and not no_dx.any():
            np.multiply(g, r, out=window, casting="same_kind")
        else:
            g *= r
            result = round_to(g, x.target)
            result[no_dx] = canonical_nan(x.target)
            dx.write(start, stop, result)
        c *= r
        c *= slopes
        dgamma.add(_block_sum(c))
        dbeta.add(slopes_sum)
    if np.isnan(kept).any():
        dgamma.special.spoil()
    return ColumnGradients(dgamma.rounded(gamma.target), dbeta.rounded(beta.target))


def _block_sum(terms: Float64) -> Float64:
    """Return the sums of columns; NumPy adds row after row, which is good for 512 of them."""
    return terms.sum(axis=0) if len(terms) <= 512 else column_sums(terms)


def _check_mean(c: Float64, high: Float64, low: Float64, v: Float64) -> None:
    """Raise if the rows, centred by what was saved, have another mean than rounding explains."""
    size = c.shape[1]
    explained = size * size * 2.0**-52 * (np.sqrt(v) + np.abs(low) + np.abs(high))
    same = np.abs(c.sum(axis=1, keepdims=True)) <= explained
    if (~np.isnan(high) & ~same).any():
        raise RuntimeError(correct.X_CHANGED)


def _row_products(left: Float64, right: Float64, scratch: Scratch) -> Float64:
    """Return the sums of products along rows: not by einsum, whose bits depend on alignment."""
    product = np.multiply(left, right, out=scratch.like(left, "product"))
    total: Float64 = product.sum(axis=1, keepdims=True)
    return total
