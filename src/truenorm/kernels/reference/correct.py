"""Correct mode over all rows: blocks, values that are not finite, and the columns."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat, Term
from truenorm.kernels.backend import ColumnGradients, Parameter
from truenorm.kernels.reference import integers, pairs, structure, working_precision
from truenorm.kernels.reference.columns import BoundedSum, ExactSum, SpecialSum
from truenorm.kernels.reference.refused import RefusedRows, settle_dx, settle_y
from truenorm.kernels.reference.scratch import Scratch
from truenorm.kernels.reference.special import (
    clear_undefined,
    finite_part,
    infinite_terms,
    no_spread,
    special_y,
)
from truenorm.kernels.reference.working_precision import Statistics
from truenorm.kernels.rounding import Tested, canonical_nan
from truenorm.kernels.rows import Rows, blocks_of_rows
from truenorm.kernels.storage import widen

__all__ = ["BLOCK", "X_CHANGED", "backward", "forward"]

Float64 = NDArray[np.float64]

BLOCK = 2**16
"""Elements of a block: its six temporaries in float64 take 3 MB."""

PAIR_BLOCK = 2**13
"""The same for double-double, which has many more temporaries."""

X_CHANGED = "x changed since the forward pass: its rows no longer have the mean that was saved"


def forward(x: Rows, gamma: Parameter, beta: Parameter, eps: float, y: Rows) -> Float64:
    """Write y, and return what is kept of each row."""
    wide = FLOAT64 in (x.target, gamma.target, beta.target)
    level = _wide_forward if wide else _narrow_forward
    kept = np.empty((x.count, 3))
    scratch = Scratch()
    usable_gamma, usable_beta = finite_part(gamma.values), finite_part(beta.values)
    special = ~(np.isfinite(gamma.values) & np.isfinite(beta.values))
    settle = partial(settle_y, gamma=usable_gamma, beta=usable_beta, eps=eps, target=x.target)
    refused = RefusedRows(y, settle, PAIR_BLOCK)
    for start, stop in blocks_of_rows(x.count, x.size, PAIR_BLOCK if wide else BLOCK):
        stored = x.read(start, stop)
        values = widen(stored, x.target, scratch.like(stored, "x"))
        undefined = clear_undefined(values) | no_spread(values, eps)
        tested, kept[start:stop] = level(values, usable_gamma, usable_beta, eps, x.target, scratch)
        if special.any():
            tested.values[:, special] = special_y(values, gamma, beta, special, x.target)
            tested.refused[:, special] = False
        kept[start:stop][undefined] = np.nan
        tested.values[undefined] = canonical_nan(x.target)
        tested.refused[undefined] = False
        y.write(start, stop, tested.values)
        refused.add(start, tested, values)
    refused.flush()
    return kept


def _narrow_forward(
    x: Float64,
    gamma: Float64,
    beta: Float64,
    eps: float,
    target: FloatFormat,
    scratch: Scratch,
) -> tuple[Tested, Float64]:
    """Levels 0 and 1, for types of at most float32."""
    tested, found = working_precision.forward(x, gamma, beta, eps, target, scratch)
    structure.accept_beta(tested, found.v[:, 0] == 0, gamma, beta, target)
    return tested, np.hstack(found)


def _wide_forward(
    x: Float64,
    gamma: Float64,
    beta: Float64,
    eps: float,
    target: FloatFormat,
    _scratch: Scratch,
) -> tuple[Tested, Float64]:
    """Levels 0 and 2, where a float64 takes part."""
    rows = pairs.describe(x, eps)
    tested = pairs.forward(rows, gamma, beta, target)
    structure.accept_beta(tested, rows.constant[:, 0], gamma, beta, target)
    integers.settle_y(tested, x, gamma, beta, eps, target)
    return tested, np.hstack([*rows.mean, rows.mean_exponent])


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
    scratch = Scratch()
    usable_gamma = finite_part(gamma.values)
    settle = partial(settle_dx, gamma=usable_gamma, eps=eps, target=x.target)
    refused = RefusedRows(dx, settle, PAIR_BLOCK)
    for start, stop in blocks_of_rows(x.count, x.size, PAIR_BLOCK if wide else BLOCK):
        stored = x.read(start, stop)
        values = widen(stored, x.target, scratch.like(stored, "x"))
        slopes = widen(dy.read(start, stop), dy.target, scratch.like(stored, "dy"))
        undefined = np.isnan(kept[start:stop, 0])
        if (clear_undefined(values) & ~undefined).any():
            raise RuntimeError(X_CHANGED)
        no_dx = undefined.copy()
        if not np.isfinite(gamma.values).all():
            no_dx[:] = True
        if not np.isfinite(slopes.sum()):
            dbeta_special.add(slopes)
            dgamma_special.add(infinite_terms(slopes, values))
            no_dx |= ~np.isfinite(slopes).all(axis=1)
            slopes = finite_part(slopes)
        if wide:
            rows = pairs.describe(values, eps)
            _check_mean(rows, kept[start:stop], undefined)
            tested = pairs.backward(rows, slopes, usable_gamma, x.target)
            if gamma.target is not None:
                share = pairs.column_sum(rows, slopes, columns)
                wide_sum = share if wide_sum is None else wide_sum + share
        else:
            found = Statistics(*np.hsplit(kept[start:stop], 3))
            gradient = working_precision.backward(
                slopes, values, found, usable_gamma, eps, x.target, scratch
            )
            if (~(gradient.drift[:, 0] <= 1) & ~undefined).any():
                raise RuntimeError(X_CHANGED)
            narrow_sum.add(gradient.dgamma)
            tested = gradient.dx
            structure.accept_zero_dx(tested, usable_gamma, slopes)
        tested.values[no_dx] = canonical_nan(x.target)
        tested.refused[no_dx] = False
        any_undefined |= bool(undefined.any())
        dx.write(start, stop, tested.values)
        refused.add(start, tested, slopes, values)
        if beta.target is not None:
            dbeta.add(slopes)
    refused.flush()
    dgamma_total = dbeta_total = None
    if gamma.target is not None:
        if any_undefined or not x.count:
            dgamma_total = np.full(x.size, np.nan if x.count else 0.0)
        else:
            tested = (wide_sum or narrow_sum).rounded(gamma.target)
            dgamma_total = widen(tested.values, gamma.target)
            left = np.flatnonzero(tested.refused)
            if len(left):
                dgamma_total[left] = _settle_columns(dy, x, left, eps, gamma, skip_pairs=wide)
            dgamma_special.apply(dgamma_total)
    if beta.target is not None:
        dbeta_total = dbeta.rounded(beta.target)
        dbeta_special.apply(dbeta_total)
    return ColumnGradients(dgamma_total, dbeta_total)


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
    ranges = list(blocks_of_rows(x.count, x.size, PAIR_BLOCK))
    if not skip_pairs:
        total: pairs.ColumnSum | None = None
        for start, stop in ranges:
            values = widen(x.read(start, stop), x.target)
            slopes = finite_part(widen(dy.read(start, stop), dy.target))
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
            slopes = finite_part(widen(dy.read(start, stop), dy.target))
            found = integers.column_terms(slopes, values, columns[left], eps)
            for column, more in zip(terms, found, strict=True):
                column.extend(more)
        settled[left] = [integers.round_column(column, gamma.target) for column in terms]
    return settled


def _check_mean(rows: pairs.PairRows, kept: Float64, undefined: NDArray[np.bool_]) -> None:
    """Raise if the mean of a row is not the one that was saved, to 2**-95 of its elements."""
    high, low, exponent = np.hsplit(kept, 3)
    moved = np.abs((rows.mean[0] - high) + (rows.mean[1] - low)) > 2.0**-95
    moved |= rows.mean_exponent != exponent
    if (moved[:, 0] & ~undefined).any():
        raise RuntimeError(X_CHANGED)
