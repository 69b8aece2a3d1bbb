"""Correct mode over all rows: blocks, values that are not finite, and the columns."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels import integers
from truenorm.kernels.backend import ColumnGradients, Parameter
from truenorm.kernels.reference import pairs, structure, working_precision
from truenorm.kernels.reference.columns import BoundedSum
from truenorm.kernels.reference.refused import RefusedRows, settle_dx, settle_y
from truenorm.kernels.reference.scratch import Scratch
from truenorm.kernels.reference.totals import Totals, round_dbeta, round_dgamma
from truenorm.kernels.reference.working_precision import Statistics
from truenorm.kernels.rounding import Tested, canonical_nan
from truenorm.kernels.rows import Rows, blocks_of_rows
from truenorm.kernels.special import (
    clear_undefined,
    finite_part,
    infinite_terms,
    no_spread,
    special_y,
)
from truenorm.kernels.storage import widen

__all__ = ["BLOCK", "X_CHANGED", "backward", "forward", "takes_pairs"]

Float64 = NDArray[np.float64]

BLOCK = 2**16
"""Elements of a block: its six temporaries in float64 take 3 MB."""

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
        pairs.BLOCK,
    )
    for start, stop in blocks_of_rows(x.count, x.size, pairs.BLOCK if wide else BLOCK):
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
        dx, partial(settle, gamma=usable_gamma, eps=eps, target=x.target), pairs.BLOCK
    )
    for start, stop in blocks_of_rows(x.count, x.size, pairs.BLOCK if wide else BLOCK):
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
        round_dgamma(totals, dy, x, eps, gamma.target), round_dbeta(totals, beta.target)
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
    # The mean is good to 2**-100 here, and to 2**-92 if another backend did forward.
    moved = np.abs((rows.mean[0] - high) + (rows.mean[1] - low)) > 2.0**-90
    moved |= rows.mean_exponent != exponent
    return pairs.backward(rows, dy, gamma, target), moved[:, 0]
