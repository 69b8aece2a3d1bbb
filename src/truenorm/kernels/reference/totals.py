"""The sums over rows of correct mode, and what is done for columns that are refused."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat, Term, round_sum_of_roots
from truenorm.kernels.reference import integers, pairs
from truenorm.kernels.reference.columns import BoundedSum, ExactSum, SpecialSum
from truenorm.kernels.reference.special import finite_part
from truenorm.kernels.rounding import Tested
from truenorm.kernels.rows import Rows, blocks_of_rows
from truenorm.kernels.storage import widen

__all__ = ["Totals", "round_dbeta", "round_dgamma"]

Float64 = NDArray[np.float64]

TERMS = 2**17
"""Terms of dgamma held at a time in exact integers, some 200 bytes each."""


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


def round_dbeta(totals: Totals, target: FloatFormat | None) -> Float64 | None:
    """Round dbeta; None if there is no beta."""
    if target is None:
        return None
    dbeta = totals.dbeta.rounded(target)
    totals.dbeta_special.apply(dbeta)
    return dbeta


def round_dgamma(
    totals: Totals, dy: Rows, x: Rows, eps: float, target: FloatFormat | None
) -> Float64 | None:
    """Round dgamma; for columns that are refused, sweep again at the next levels."""
    if target is None:
        return None
    tested = totals.dgamma.rounded(target)
    dgamma = widen(tested.values, target)
    left = np.flatnonzero(tested.refused & totals.dgamma_special.none)
    if len(left) and isinstance(totals.dgamma, BoundedSum):
        tested = _columns_in_pairs(dy, x, left, eps, target)
        dgamma[left] = widen(tested.values, target)
        left = left[tested.refused]
    if len(left):
        dgamma[left] = _columns_in_integers(dy, x, left, eps, target)
    totals.dgamma_special.apply(dgamma)
    return dgamma


def _blocks_again(dy: Rows, x: Rows) -> Iterator[tuple[Float64, Float64]]:
    """Yield dy and x once more; the columns that are looked at have finite terms only."""
    for start, stop in blocks_of_rows(x.count, x.size, pairs.BLOCK):
        slopes = finite_part(widen(dy.read(start, stop), dy.target))
        yield slopes, widen(x.read(start, stop), x.target)


def _columns_in_pairs(
    dy: Rows, x: Rows, columns: NDArray[np.intp], eps: float, target: FloatFormat
) -> Tested:
    """Sum some columns of dgamma in double-double."""
    totals = Totals(x.size, with_dgamma=True)
    for slopes, values in _blocks_again(dy, x):
        totals.add_pairs(pairs.column_sum(pairs.describe(values, eps), slopes, columns))
    return totals.dgamma.rounded(target)


def _columns_in_integers(
    dy: Rows, x: Rows, columns: NDArray[np.intp], eps: float, target: FloatFormat
) -> list[float]:
    """Sum some columns of dgamma exactly, so many at a time that their terms stay few."""
    step = max(1, TERMS // x.count)
    sums: list[float] = []
    for group in (columns[k : k + step] for k in range(0, len(columns), step)):
        terms: list[list[Term]] = [[] for _ in group]
        for slopes, values in _blocks_again(dy, x):
            found = integers.column_terms(slopes, values, group, eps)
            for column, more in zip(terms, found, strict=True):
                column.extend(more)
        sums += [round_sum_of_roots(column, target) for column in terms]
    return sums
