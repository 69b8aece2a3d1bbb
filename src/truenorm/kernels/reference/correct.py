"""Correct mode over all rows: blocks, values that are not finite, and the columns."""

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, Term
from truenorm.kernels.backend import ColumnGradients, Parameter
from truenorm.kernels.reference import blocks, integers, pairs
from truenorm.kernels.reference.columns import BoundedSum, ExactSum, SpecialSum
from truenorm.kernels.rounding import canonical_nan, round_to
from truenorm.kernels.rows import Rows, blocks_of_rows
from truenorm.kernels.storage import widen

__all__ = ["BLOCK", "X_CHANGED", "backward", "forward"]

Float64 = NDArray[np.float64]

BLOCK = 2**15
"""Elements of a block: ten temporaries of this size in float64 stay in a cache of 2 MB."""

X_CHANGED = "x changed since the forward pass: its rows no longer have the mean that was saved"


def forward(x: Rows, gamma: Parameter, beta: Parameter, eps: float, y: Rows) -> Float64:
    """Write y, and return what is kept of each row."""
    wide = FLOAT64 in (x.target, gamma.target, beta.target)
    level = blocks.wide_forward if wide else blocks.narrow_forward
    kept = np.empty((x.count, 3))
    finite_gamma, finite_beta = (_finite(parameter.values) for parameter in (gamma, beta))
    special = ~(np.isfinite(gamma.values) & np.isfinite(beta.values))
    for start, stop in blocks_of_rows(x.count, x.size, BLOCK):
        values = widen(x.read(start, stop), x.target)
        undefined = _clear_undefined(values)
        tested, kept[start:stop] = level(values, finite_gamma, finite_beta, eps, x.target)
        if special.any():
            signs = integers.signs(values)[:, special]
            by_rule = gamma.values[special] * signs + beta.values[special]
            by_rule[np.isnan(by_rule)] = np.nan  # in its one form
            tested.values[:, special] = round_to(by_rule, x.target)
        undefined |= _no_spread(values, eps)
        kept[start:stop][undefined] = np.nan
        tested.values[undefined] = canonical_nan(x.target)
        y.write(start, stop, tested.values)
    return kept


def backward(
    dy: Rows, x: Rows, kept: Float64, gamma: Parameter, beta: Parameter, eps: float, dx: Rows
) -> ColumnGradients:
    """Write dx, and return dgamma and dbeta."""
    wide = FLOAT64 in (x.target, gamma.target, beta.target)
    columns = np.arange(x.size)
    narrow_sum = BoundedSum(x.size)
    wide_sum: pairs.ColumnSum | None = None
    dbeta, dbeta_special = ExactSum(x.size), SpecialSum(x.size)
    dgamma_special = SpecialSum(x.size)
    any_undefined = False
    finite_gamma = _finite(gamma.values)
    for start, stop in blocks_of_rows(x.count, x.size, BLOCK):
        values, slopes, undefined = _read(dy, x, kept, start, stop)
        unusable = ~np.isfinite(slopes) | ~np.isfinite(gamma.values)
        if not np.isfinite(slopes).all():
            dbeta_special.add(slopes)
            dgamma_special.add(_times_signs(slopes, values))
            slopes = _finite(slopes)
        if wide:
            tested, rows = blocks.wide_backward(slopes, values, finite_gamma, eps, x.target)
            _check_mean(rows, kept[start:stop], undefined)
            if gamma.target is not None:
                share = pairs.column_sum(rows, slopes, columns)
                wide_sum = share if wide_sum is None else wide_sum + share
        else:
            found = blocks.narrow_backward(
                slopes, values, kept[start:stop], finite_gamma, eps, x.target
            )
            if (found.changed[:, 0] & ~undefined).any():
                raise RuntimeError(X_CHANGED)
            tested = found.dx
            narrow_sum.add(found.dgamma)
        tested.values[undefined | unusable.any(axis=1)] = canonical_nan(x.target)
        any_undefined |= bool(undefined.any())
        dx.write(start, stop, tested.values)
        if beta.target is not None:
            dbeta.add(slopes)
    result = ColumnGradients(None, None)
    if gamma.target is not None:
        if any_undefined or not x.count:
            totals = np.full(x.size, np.nan if x.count else 0.0)
        else:
            tested = (
                wide_sum.rounded(gamma.target) if wide_sum else narrow_sum.rounded(gamma.target)
            )
            totals = widen(tested.values, gamma.target)
            refused = np.flatnonzero(tested.refused)
            if len(refused):
                totals[refused] = _settle_columns(dy, x, refused, eps, gamma, skip_pairs=wide)
            dgamma_special.apply(totals)
        result = result._replace(dgamma=totals)
    if beta.target is not None:
        totals = dbeta.rounded(beta.target)
        dbeta_special.apply(totals)
        result = result._replace(dbeta=totals)
    return result


def _settle_columns(
    dy: Rows,
    x: Rows,
    columns: NDArray[np.intp],
    eps: float,
    gamma: Parameter,
    *,
    skip_pairs: bool,
) -> Float64:
    """Sweep again for the columns of dgamma that were refused: in pairs, then in integers."""
    assert gamma.target is not None
    settled = np.zeros(len(columns))
    left = np.arange(len(columns))
    ranges = list(blocks_of_rows(x.count, x.size, BLOCK))
    if not skip_pairs:
        total: pairs.ColumnSum | None = None
        for start, stop in ranges:
            values = widen(x.read(start, stop), x.target)
            slopes = _finite(widen(dy.read(start, stop), dy.target))
            share = pairs.column_sum(pairs.describe(values, eps), slopes, columns)
            total = share if total is None else total + share
        assert total is not None
        tested = total.rounded(gamma.target)
        settled = widen(tested.values, gamma.target)
        left = np.flatnonzero(tested.refused)
    if len(left):
        terms: list[list[Term]] = [[] for _ in left]
        for start, stop in ranges:
            values = widen(x.read(start, stop), x.target)
            slopes = _finite(widen(dy.read(start, stop), dy.target))
            found = integers.column_terms(slopes, values, columns[left], eps)
            for column, more in zip(terms, found, strict=True):
                column.extend(more)
        settled[left] = [integers.round_column(column, gamma.target) for column in terms]
    return settled


def _read(
    dy: Rows, x: Rows, kept: Float64, start: int, stop: int
) -> tuple[Float64, Float64, NDArray[np.bool_]]:
    """Return x and dy of a block, and which rows have no defined result."""
    values = widen(x.read(start, stop), x.target)
    undefined = _clear_undefined(values) | np.isnan(kept[start:stop, 0])
    return values, widen(dy.read(start, stop), dy.target), undefined


def _finite(values: Float64) -> Float64:
    """Return the values with zero in place of what is not finite; that is dealt with apart."""
    return np.where(np.isfinite(values), values, 0.0)


def _clear_undefined(x: Float64) -> NDArray[np.bool_]:
    """Put zeros into the rows that are not finite, and return which they are."""
    undefined: NDArray[np.bool_] = np.logical_not(np.isfinite(x).all(axis=1))
    x[undefined] = 0.0
    return undefined


def _no_spread(x: Float64, eps: float) -> NDArray[np.bool_]:
    """Return the constant rows if eps is 0: they have no result."""
    if eps > 0:
        return np.zeros(len(x), bool)
    constant: NDArray[np.bool_] = np.equal(x.max(axis=1), x.min(axis=1))
    return constant


def _times_signs(dy: Float64, x: Float64) -> Float64:
    """Return dy times the sign of c where dy is not finite, and 0 elsewhere."""
    terms = np.zeros_like(dy)
    for i in np.flatnonzero(~np.isfinite(dy).all(axis=1)):
        infinite = ~np.isfinite(dy[i])
        terms[i, infinite] = dy[i, infinite] * integers.signs(x[i : i + 1])[0, infinite]
    return terms


def _check_mean(rows: pairs.PairRows, kept: Float64, undefined: NDArray[np.bool_]) -> None:
    """Raise if the mean of a row is not the one that was saved, to 2**-95 of its elements."""
    high, low, exponent = np.hsplit(kept, 3)
    moved = np.abs((rows.mean[0] - high) + (rows.mean[1] - low)) > 2.0**-95
    moved |= rows.mean_exponent != exponent
    if (moved[:, 0] & ~undefined).any():
        raise RuntimeError(X_CHANGED)
