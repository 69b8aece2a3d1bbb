"""Fast mode over all rows, for types of at most float32: the last bit for speed.

Sums over rows are taken over blocks that depend on the number of rows alone, and the blocks are
added in a fixed tree: bits depend neither on threads nor on the batch a row stands in.
"""

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.backend import ColumnGradients, Parameter
from truenorm.kernels.fused.blocks import (
    LONG,
    Source,
    Target,
    blocks_within,
    in_blocks,
    threads_for,
)
from truenorm.kernels.fused.compiled.ground import CHANGED, NOT_FINITE
from truenorm.kernels.fused.compiled.single import backward as fast_backward
from truenorm.kernels.fused.compiled.single import forward as fast_forward
from truenorm.kernels.fused.correct import Columns, nan_held, write_special
from truenorm.kernels.fused.correct_backward import X_CHANGED
from truenorm.kernels.fused.scratch import aligned, scratch_of_fast_backward, scratch_of_forward
from truenorm.kernels.rounding import canonical_nan, round_to
from truenorm.kernels.rows import Rows
from truenorm.kernels.special import SpecialSum, finite_part, infinite_terms
from truenorm.kernels.storage import widen

__all__ = ["backward", "forward"]

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]

LARGEST = 2.0**60
"""Of gamma and beta that float32 rows can have."""


def _in_float32(values: Float64) -> Float32:
    """Return rows of parameters in float32, or empty ones if they are too large for that."""
    if np.abs(values).max() > LARGEST:
        return np.empty((len(values), 0), np.float32)
    return values.astype(np.float32)


def forward(
    x: Rows, gamma: Parameter, beta: Parameter, eps: float, y: Rows, threads: int | None
) -> Float64:
    """Write y, and return the mean as a pair and the variance of each row."""
    columns = Columns.of(gamma, beta, x.target)
    single = _in_float32(np.stack([columns.gamma, columns.beta]))
    kept = np.empty((x.count, 3))
    source, target = Source(x), Target(y)

    def work(start: int, stop: int) -> None:
        found = target.block(start, stop)
        given = source.block_beside(found, start, stop)
        fast_forward.forward(
            given,
            columns.gamma,
            columns.beta,
            columns.weight,
            single,
            columns.constant,
            columns.nan,
            eps,
            found,
            kept[start:stop],
            aligned(scratch_of_forward(x.size)),
        )
        if columns.special is not None:
            write_special(given, gamma, beta, columns, found, kept[start:stop], x.target)
        target.done(start, stop, found)

    in_blocks(work, blocks_within(0, x.count, x.size), threads_for(x, threads))
    return kept


def _rows_of_block(count: int, size: int) -> int:
    """Return how many rows have sums of their own: 512, and less where that is too few blocks."""
    if size >= LONG:  # the sums of a block are as long as a row
        return min(512, max(4, -(-count // 4)))
    return min(512, max(32, -(-count // 256) * 32))


def backward(
    dy: Rows,
    x: Rows,
    kept: Float64,
    gamma: Parameter,
    beta: Parameter,
    eps: float,
    dx: Rows,
    threads: int | None,
) -> ColumnGradients:
    """Write dx, and return dgamma and dbeta."""
    usable = finite_part(gamma.values)
    single = _in_float32(usable[np.newaxis])[0]
    nan = canonical_nan(x.target)
    slopes, source, target = Source(dy), Source(x), Target(dx)
    step = _rows_of_block(x.count, x.size)
    blocks = [(k, min(k + step, x.count)) for k in range(0, x.count, step)]
    sums = aligned((len(blocks) + 1) * 2 * x.size).reshape(-1, 2, x.size)
    sums[...] = 0
    not_finite: list[int] = []

    def work(start: int, stop: int) -> None:
        found = target.block(start, stop)
        status = np.empty(stop - start, np.uint8)
        given = slopes.block(start, stop), source.block(start, stop), kept[start:stop]
        share = sums[start // step]
        scratch = aligned(scratch_of_fast_backward(x.size))
        if fast_backward.backward(
            *given, usable, single, nan_held(x.target), eps, found, share, status, scratch
        ):
            if (status == CHANGED).any():
                raise RuntimeError(X_CHANGED)
            not_finite.extend((start + np.flatnonzero(status == NOT_FINITE)).tolist())
        target.done(start, stop, found)

    in_blocks(work, blocks, threads_for(x, threads))
    special = SpecialSum(x.size), SpecialSum(x.size)
    if not_finite:
        rows = np.array(sorted(not_finite))
        some, values = slopes.copy(rows), source.copy(rows)
        wide = widen(some.view(nan.dtype), x.target)
        special[0].add(infinite_terms(wide, finite_part(widen(values.view(nan.dtype), x.target))))
        special[1].add(wide)
        some[~np.isfinite(wide)] = 0
        nowhere, status = np.empty_like(values), np.empty(len(rows), np.uint8)
        fast_backward.backward(
            some,
            values,
            kept[rows],
            usable,
            single,
            nan_held(x.target),
            eps,
            nowhere,
            sums[-1],
            status,
            aligned(scratch_of_fast_backward(x.size)),
        )
    if not np.isfinite(gamma.values).all():
        not_finite = list(range(x.count))
    for i in not_finite:
        dx.write(i, i + 1, np.full((1, x.size), nan))
    if np.isnan(kept[:, 0]).any():
        special[0].spoil()
    totals = _added_up(sums)
    return ColumnGradients(
        _rounded(totals[0], special[0], gamma.target), _rounded(totals[1], special[1], beta.target)
    )


def _added_up(sums: Float64) -> Float64:
    """Add the sums of blocks in halves: each goes through few additions, always the same."""
    while (count := len(sums)) > 1:
        half = (count + 1) // 2
        sums[: count - half] += sums[half:]
        sums = sums[:half]
    total: Float64 = sums[0]
    return total


def _rounded(total: Float64, special: SpecialSum, target: FloatFormat | None) -> Float64 | None:
    if target is None:
        return None
    special.apply(total)
    return widen(round_to(total, target), target)
