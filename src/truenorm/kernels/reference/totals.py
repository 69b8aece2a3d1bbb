"""The sums over rows of correct mode, and what is done for columns that are refused."""

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels import integers
from truenorm.kernels.integers import finite_blocks
from truenorm.kernels.reference import pairs
from truenorm.kernels.reference.columns import BoundedSum, ExactSum
from truenorm.kernels.rounding import Tested
from truenorm.kernels.rows import Rows
from truenorm.kernels.special import SpecialSum
from truenorm.kernels.storage import widen

__all__ = ["Totals", "round_dbeta", "round_dgamma"]

Float64 = NDArray[np.float64]


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
        dgamma[left] = integers.column_sums(dy, x, left, eps, target)
    totals.dgamma_special.apply(dgamma)
    return dgamma


def _columns_in_pairs(
    dy: Rows, x: Rows, columns: NDArray[np.intp], eps: float, target: FloatFormat
) -> Tested:
    """Sum some columns of dgamma in double-double."""
    totals = Totals(x.size, with_dgamma=True)
    for slopes, values in finite_blocks(dy, x, pairs.BLOCK):
        totals.add_pairs(pairs.column_sum(pairs.describe(values, eps), slopes, columns))
    return totals.dgamma.rounded(target)
