"""Correct mode, backward: dx of all rows in one sweep, then the sums over rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels import integers
from truenorm.kernels.backend import ColumnGradients, Parameter
from truenorm.kernels.fused.blocks import (
    Source,
    Target,
    blocks_within,
    held,
    in_blocks,
    in_ranges,
    row_ranges,
    threads_for,
)
from truenorm.kernels.fused.compiled.ground import CHANGED, NOT_FINITE, REFUSED, UNDEFINED
from truenorm.kernels.fused.compiled.narrow import backward as narrow_backward
from truenorm.kernels.fused.compiled.pairs import backward as pair_backward
from truenorm.kernels.fused.compiled.pairs import columns as pair_columns
from truenorm.kernels.fused.correct import MASKED, nan_held, stored_as, takes_pairs
from truenorm.kernels.fused.scratch import aligned, scratch_of_backward, scratch_of_pairs
from truenorm.kernels.fused.sweep import Sweep, Totals
from truenorm.kernels.fused.totals import round_dbeta, round_dgamma
from truenorm.kernels.rounding import Tested, canonical_nan
from truenorm.kernels.rows import Rows
from truenorm.kernels.special import SpecialSum, finite_part, infinite_terms
from truenorm.kernels.storage import widen

__all__ = ["backward"]

X_CHANGED = "x changed since the forward pass: its rows no longer have the mean that was saved"


def backward(
    dy: Rows,
    x: Rows,
    kept: NDArray[np.float64],
    gamma: Parameter,
    beta: Parameter,
    eps: float,
    dx: Rows,
    threads: int | None,
) -> ColumnGradients:
    """Write dx, and return dgamma and dbeta."""
    given = _prepare(dy, x, kept, gamma, beta, eps, threads)
    target = Target(dx)
    ranges = row_ranges(x.count, x.size, given.threads)
    shares = [Totals(x.size) for _ in ranges]

    def work(index: int) -> None:
        for start, stop in blocks_within(*ranges[index], x.size):
            found = target.block(start, stop)
            _sweep_block(given, start, stop, found, shares[index])
            target.done(start, stop, found)

    in_ranges(work, ranges, given.threads)
    totals = shares[0]
    for share in shares[1:]:
        totals.add(share)
    if totals.not_finite:
        _add_finite_parts(given, totals)
    if not np.isfinite(gamma.values).all():
        totals.not_finite = list(range(x.count))
    for i in totals.not_finite:
        dx.write(i, i + 1, np.full((1, x.size), canonical_nan(x.target)))
    return ColumnGradients(
        round_dgamma(totals, given, dy, x, gamma.target), round_dbeta(totals, given, beta.target)
    )


def _prepare(
    dy: Rows,
    x: Rows,
    kept: NDArray[np.float64],
    gamma: Parameter,
    beta: Parameter,
    eps: float,
    threads: int | None,
) -> Sweep:
    """Scale what float64 data needs scaled, and gather the rest."""
    wide = takes_pairs(x, gamma, beta)
    count = threads_for(x, threads)
    usable = finite_part(gamma.values)
    slopes = Source(dy)
    scaled, gamma_exponent, dy_exponent = usable, 0, 0
    if wide:
        gamma_exponent = int(pair_backward.largest_exponent(usable))
        scaled = np.ldexp(usable, -gamma_exponent)
        blocks = blocks_within(0, x.count, x.size)
        found: list[int] = []

        def look(start: int, stop: int) -> None:
            found.append(int(pair_columns.largest_exponent_of_rows(slopes.block(start, stop))))

        in_blocks(look, blocks, count)
        dy_exponent = max(found, default=0)
    return Sweep(
        dy=slopes,
        x=Source(x),
        count=x.count,
        size=x.size,
        kept=kept,
        gamma=usable,
        scaled_gamma=scaled,
        gamma_exponent=gamma_exponent,
        dy_exponent=dy_exponent,
        eps=eps,
        target=x.target,
        stored=stored_as(x.target),
        nan=nan_held(x.target),
        wide=wide,
        threads=count,
    )


def _sweep_block(given: Sweep, start: int, stop: int, dx: NDArray[Any], totals: Totals) -> None:
    """Write dx of a block of rows and add to the sums; settle what level 1 refuses."""
    dy, x = given.dy.block(start, stop), given.x.block(start, stop)
    status = np.empty(len(x), np.uint8)
    kept = given.kept[start:stop]
    if given.wide:
        left = _wide_block(given, dy, x, kept, dx, totals, status)
    else:
        left = narrow_backward.backward(
            dy,
            x,
            kept,
            given.gamma,
            given.nan,
            given.eps,
            dx,
            totals.sums,
            totals.extent,
            status,
            aligned(scratch_of_backward(given.size)),
        )
    if not left:
        return
    if (status == CHANGED).any():
        raise RuntimeError(X_CHANGED)
    totals.undefined |= bool((status == UNDEFINED).any())
    totals.not_finite += (start + np.flatnonzero(status == NOT_FINITE)).tolist()
    if not given.wide:
        _settle_dx(given, dy, x, dx, np.flatnonzero(status == REFUSED))


def _wide_block(
    given: Sweep,
    dy: NDArray[Any],
    x: NDArray[Any],
    kept: NDArray[np.float64],
    dx: NDArray[Any],
    totals: Totals,
    status: NDArray[np.uint8],
) -> bool:
    """Levels 0, 2 and 3, where a float64 takes part; return whether some row is not done."""
    refused = np.empty(x.shape, np.bool_)
    if pair_columns.backward(
        dy,
        x,
        kept,
        given.scaled_gamma,
        given.gamma_exponent,
        given.dy_exponent,
        given.nan,
        given.eps,
        dx,
        totals.sums,
        status,
        refused,
        aligned(scratch_of_pairs(given.size)),
    ):
        _settle_dx_in_integers(given, dy, x, dx, np.arange(len(x)), refused)
    return bool(status.any())


def _settle_dx(
    given: Sweep, dy: NDArray[Any], x: NDArray[Any], dx: NDArray[Any], rows: NDArray[np.intp]
) -> None:
    """Take refused rows through double-double and integers."""
    step = max(1, MASKED // given.size)
    for some in (rows[k : k + step] for k in range(0, len(rows), step)):
        refused = np.empty((len(some), given.size), np.bool_)
        if pair_backward.settle_dx(
            dy,
            x,
            given.scaled_gamma,
            given.gamma_exponent,
            given.eps,
            dx,
            some,
            refused,
            aligned(scratch_of_pairs(given.size)),
        ):
            _settle_dx_in_integers(given, dy, x, dx, some, refused)


def _settle_dx_in_integers(
    given: Sweep,
    dy: NDArray[Any],
    x: NDArray[Any],
    dx: NDArray[Any],
    rows: NDArray[np.intp],
    refused: NDArray[np.bool_],
) -> None:
    """Level 3: put the correctly rounded dx in the place of every refused one."""
    left = np.flatnonzero(refused.any(axis=1))
    rows = rows[left]
    tested = Tested(dx[rows].view(given.stored), refused[left])
    slopes, values = (widen(part[rows].view(given.stored), given.target) for part in (dy, x))
    integers.settle_dx(tested, slopes, values, given.gamma, given.eps, given.target)
    dx[rows] = held(tested.values, given.target)


def _add_finite_parts(given: Sweep, totals: Totals) -> None:
    """Do rows whose dy is not finite: by rule what is not, and by arithmetic what is."""
    rows = np.array(totals.not_finite)
    dy, x = given.dy.copy(rows), given.x.copy(rows)
    slopes = widen(dy.view(given.stored), given.target)
    totals.dgamma_special, totals.dbeta_special = SpecialSum(given.size), SpecialSum(given.size)
    totals.dbeta_special.add(slopes)
    values = finite_part(widen(x.view(given.stored), given.target))
    totals.dgamma_special.add(infinite_terms(slopes, values))
    dy[~np.isfinite(slopes)] = 0
    nowhere = np.empty_like(x)
    status = np.empty(len(x), np.uint8)
    kept = given.kept[rows]
    if given.wide:
        _wide_block(given, dy, x, kept, nowhere, totals, status)
    else:
        narrow_backward.backward(
            dy,
            x,
            kept,
            given.gamma,
            given.nan,
            given.eps,
            nowhere,
            totals.sums,
            totals.extent,
            status,
            aligned(scratch_of_backward(given.size)),
        )
    if (status == CHANGED).any():
        raise RuntimeError(X_CHANGED)
    totals.undefined |= bool((status == UNDEFINED).any())
