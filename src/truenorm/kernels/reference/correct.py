"""Correct mode over all rows: blocks, values that are not finite, and the columns."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat, Term, round_sum_of_roots
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

__all__ = ["BLOCK", "X_CHANGED", "backward", "forward", "takes_pairs"]

Float64 = NDArray[np.float64]

BLOCK = 2**16
"""Elements of a block: its six temporaries in float64 take 3 MB."""

PAIR_BLOCK = 2**13
"""The same for double-double, which has many more temporaries."""

TERMS = 2**17
"""Terms of dgamma held at a time in exact integers, some 200 bytes each."""

X_CHANGED = "x changed since the forward pass: its rows no longer have the mean that was saved"


def takes_pairs(x: Rows, gamma: Parameter, beta: Parameter) -> bool:
    """Return whether float64 is not wide enough to work in, because one of them has it."""
    return FLOAT64 in (x.target, gamma.target, beta.target)


def forward(x: Rows, gamma: Parameter, beta: Parameter, eps: float, y: Rows) -> Float64:
    """Write y, and return what is kept of each row."""
    wide = takes_pairs(x, gamma, beta)
    level = _wide_forward if wide else _narrow_forward
    kept = np.empty((x.count, 3))
    scratch = Scratch()
    usable_gamma, usable_beta = finite_part(gamma.values), finite_part(beta.values)
    special = ~(np.isfinite(gamma.values) & np.isfinite(beta.values))
    refused = RefusedRows(
        y,
        partial(
            integers.settle_y if wide else settle_y,
            gamma=usable_gamma,
            beta=usable_beta,
            eps=eps,
            target=x.target,
        ),
        PAIR_BLOCK,
    )
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
    return tested, np.hstack([*rows.mean, rows.mean_exponent])


class Totals:
    """The sums over rows that grow while backward sweeps."""

    def __init__(self, columns: int, *, with_dgamma: bool) -> None:
        self.with_dgamma = with_dgamma
        self.dgamma: BoundedSum | pairs.ColumnSum = BoundedSum(columns)
        self.dgamma_special = SpecialSum(columns)
        self.dbeta = ExactSum(columns)
        self.dbeta_special = SpecialSum(columns)

    def add_pairs(self, share: pairs.ColumnSum) -> None:
        """Add a block's share of dgamma in double-double."""
        if isinstance(self.dgamma, pairs.ColumnSum):
            share = self.dgamma + share
        self.dgamma = share


def backward(
    dy: Rows, x: Rows, kept: Float64, gamma: Parameter, beta: Parameter, eps: float, dx: Rows
) -> ColumnGradients:
    """Write dx, and return dgamma and dbeta."""
    wide = takes_pairs(x, gamma, beta)
    level = _wide_backward if wide else _narrow_backward
    totals, scratch = Totals(x.size, with_dgamma=gamma.target is not None), Scratch()
    usable_gamma = finite_part(gamma.values)
    settle = integers.settle_dx if wide else settle_dx
    refused = RefusedRows(
        dx, partial(settle, gamma=usable_gamma, eps=eps, target=x.target), PAIR_BLOCK
    )
    for start, stop in blocks_of_rows(x.count, x.size, PAIR_BLOCK if wide else BLOCK):
        stored = x.read(start, stop)
        values = widen(stored, x.target, scratch.like(stored, "x"))
        slopes = widen(dy.read(start, stop), dy.target, scratch.like(stored, "dy"))
        undefined = np.isnan(kept[start:stop, 0])
        if (clear_undefined(values) & ~undefined).any():
            raise RuntimeError(X_CHANGED)
        no_dx = undefined | (not np.isfinite(gamma.values).all())
        if not np.isfinite(slopes.sum()):
            totals.dbeta_special.add(slopes)
            totals.dgamma_special.add(infinite_terms(slopes, values))
            no_dx |= ~np.isfinite(slopes).all(axis=1)
            slopes = finite_part(slopes)
        tested, moved = level(
            slopes, values, kept[start:stop], usable_gamma, eps, x.target, totals, scratch
        )
        if (moved & ~undefined).any():
            raise RuntimeError(X_CHANGED)
        tested.values[no_dx] = canonical_nan(x.target)
        tested.refused[no_dx] = False
        dx.write(start, stop, tested.values)
        refused.add(start, tested, slopes, values)
        if beta.target is not None:
            totals.dbeta.add(slopes)
    refused.flush()
    if np.isnan(kept).any():
        totals.dgamma_special.spoil()
    return ColumnGradients(
        _round_dgamma(totals, dy, x, eps, gamma.target), _round_dbeta(totals, beta.target)
    )


def _narrow_backward(
    dy: Float64,
    x: Float64,
    kept: Float64,
    gamma: Float64,
    eps: float,
    target: FloatFormat,
    totals: Totals,
    scratch: Scratch,
) -> tuple[Tested, NDArray[np.bool_]]:
    """Levels 0 and 1, for types of at most float32; also return which rows have changed."""
    found = Statistics(*np.hsplit(kept, 3))
    gradient = working_precision.backward(dy, x, found, gamma, eps, target, scratch)
    structure.accept_zero_dx(gradient.dx, gamma, dy)
    assert isinstance(totals.dgamma, BoundedSum)
    totals.dgamma.add(gradient.dgamma)
    return gradient.dx, ~(gradient.drift[:, 0] <= 1)


def _wide_backward(
    dy: Float64,
    x: Float64,
    kept: Float64,
    gamma: Float64,
    eps: float,
    target: FloatFormat,
    totals: Totals,
    _scratch: Scratch,
) -> tuple[Tested, NDArray[np.bool_]]:
    """Levels 0 and 2, where a float64 takes part; also return which rows have changed."""
    rows = pairs.describe(x, eps)
    if totals.with_dgamma:
        totals.add_pairs(pairs.column_sum(rows, dy, np.arange(x.shape[1])))
    high, low, exponent = np.hsplit(kept, 3)
    moved = np.abs((rows.mean[0] - high) + (rows.mean[1] - low)) > 2.0**-95
    moved |= rows.mean_exponent != exponent
    return pairs.backward(rows, dy, gamma, target), moved[:, 0]


def _round_dbeta(totals: Totals, target: FloatFormat | None) -> Float64 | None:
    if target is None:
        return None
    dbeta = totals.dbeta.rounded(target)
    totals.dbeta_special.apply(dbeta)
    return dbeta


def _round_dgamma(
    totals: Totals, dy: Rows, x: Rows, eps: float, target: FloatFormat | None
) -> Float64 | None:
    """Round dgamma; for columns that are refused, sweep again at the next levels."""
    if target is None:
        return None
    tested = totals.dgamma.rounded(target)
    dgamma = widen(tested.values, target)
    left = np.flatnonzero(tested.refused & totals.dgamma_special.none)
    if len(left):
        wide = isinstance(totals.dgamma, pairs.ColumnSum)
        dgamma[left] = _settle_columns(dy, x, left, eps, target, skip_pairs=wide)
    totals.dgamma_special.apply(dgamma)
    return dgamma


def _settle_columns(
    dy: Rows,
    x: Rows,
    columns: NDArray[np.intp],
    eps: float,
    target: FloatFormat,
    *,
    skip_pairs: bool,
) -> Float64:
    """Sweep again for the columns of dgamma that were refused: in pairs, then in integers."""
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
        tested = total.rounded(target)
        settled = widen(tested.values, target)
        left = np.flatnonzero(tested.refused)
    # So many columns at a time that their terms, a few integers for each row, stay few.
    step = max(1, TERMS // x.count)
    for group in (left[k : k + step] for k in range(0, len(left), step)):
        terms: list[list[Term]] = [[] for _ in group]
        for start, stop in ranges:
            values = widen(x.read(start, stop), x.target)
            slopes = finite_part(widen(dy.read(start, stop), dy.target))
            found = integers.column_terms(slopes, values, columns[group], eps)
            for column, more in zip(terms, found, strict=True):
                column.extend(more)
        settled[group] = [round_sum_of_roots(column, target) for column in terms]
    return settled
