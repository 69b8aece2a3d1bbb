"""Going over all rows: in parts, on several threads, a block at a time."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels import fallback
from truenorm.kernels.call import Call
from truenorm.kernels.protocol import Backward, ColumnSums, ColumnSweep, Mergeable, RowSums, Sweep
from truenorm.kernels.rounding import Tested
from truenorm.kernels.rows import Rows, Source, blocks_of, widen
from truenorm.kernels.special import SpecialSum, infinite_terms
from truenorm.threads import for_each_block

Sums = TypeVar("Sums", bound=Mergeable)


class SweepsLike:
    """Goes over the rows in the way of another sweep."""

    def __init__(self, other: Sweep) -> None:
        self.threads, self.parts = other.threads, other.parts
        self.rows_at_once = other.rows_at_once


def in_parts(work: Callable[[int], None], parts: int, threads: int) -> None:
    """Do work for every part, which gets its number.

    NumPy is told to be quiet by each thread: what it was told holds for the one that called.
    """
    if threads == 1 or parts == 1:
        for k in range(parts):
            work(k)
        return

    def quiet(k: int, _: int) -> None:
        with np.errstate(all="ignore"):
            work(k)

    for_each_block(quiet, [(k, k + 1) for k in range(parts)], threads)


def merged(shares: list[Sums]) -> Sums:
    """Add up sums over parts in halves: each goes through few additions, always the same."""
    while (count := len(shares)) > 1:
        half = (count + 1) // 2
        for share, other in zip(shares, shares[half:], strict=False):
            share.merge(other)
        shares = shares[:half]
    return shares[0]


def summed(sweep: ColumnSweep[Any], dy: Source, x: Source) -> ColumnSums:
    """Sweep over all rows, and return the sums of the columns."""
    shares = [sweep.sums() for _ in sweep.parts]

    def work(k: int) -> None:
        for start, stop in blocks_of(sweep.parts[k], sweep.rows_at_once):
            sweep.add(dy.block(start, stop), x.block(start, stop), shares[k])

    in_parts(work, len(shares), sweep.threads)
    total: ColumnSums = merged(shares)
    return total


Float64 = NDArray[np.float64]


class SpecialColumns:
    """What becomes of columns with terms that are not finite."""

    def __init__(self, call: Call) -> None:
        self._norm = call.norm
        self.dgamma, self.dbeta = SpecialSum(call.size), SpecialSum(call.size)

    def add(self, dy: Float64, x: Float64) -> None:
        """Note the terms of some rows that are not finite."""
        self.dgamma.add(infinite_terms(dy, x, self._norm))
        self.dbeta.add(dy)


def round_dgamma(
    call: Call,
    level: Backward[Any],
    sums: RowSums,
    special: SpecialColumns | None,
    dy: Rows,
    x: Rows,
) -> Float64 | None:
    """Round dgamma; None if there is no gamma. Undecided columns end in integers."""
    if call.gamma_format is None:
        return None
    rules = None if special is None else special.dgamma
    tested = _decided(sums.dgamma, call.gamma_format, rules, level.tier2_dgamma, dy, x)
    dgamma = widen(tested.values, call.gamma_format)
    left = np.flatnonzero(tested.undecided)
    if len(left):
        dgamma[left] = fallback.column_sums(dy, x, left, call, call.gamma_format)
    if rules is not None:
        rules.apply(dgamma)
    return dgamma


def round_dbeta(
    call: Call,
    level: Backward[Any],
    sums: RowSums,
    special: SpecialColumns | None,
    dy: Rows,
    x: Rows,
) -> Float64 | None:
    """Round dbeta; None if there is no beta. A second look at it is exact."""
    if call.beta_format is None:
        return None
    rules = None if special is None else special.dbeta
    tested = _decided(sums.dbeta, call.beta_format, rules, level.exact_dbeta, dy, x)
    dbeta = widen(tested.values, call.beta_format)
    if rules is not None:
        rules.apply(dbeta)
    return dbeta


def _decided(
    sums: ColumnSums,
    target: FloatFormat,
    rules: SpecialSum | None,
    again: Callable[[NDArray[np.intp]], ColumnSweep[Any] | None],
    dy: Rows,
    x: Rows,
) -> Tested:
    """Round sums; sweep once more, if there is a way, for columns that are undecided.

    Columns for which there are rules need no second look.
    """
    tested = sums.rounded(target)
    if rules is not None:
        tested.undecided[~rules.none] = False
    left = np.flatnonzero(tested.undecided)
    while len(left) and (sweep := again(left)) is not None:
        better = summed(sweep, Source(dy), Source(x)).rounded(target)
        tested.values[sweep.columns] = better.values
        tested.undecided[sweep.columns] = better.undecided
        left = left[len(sweep.columns) :]
    return tested
