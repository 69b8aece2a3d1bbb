"""Sums over rows, rounded: what is not finite by rule, what is undecided by a second look."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels import integers
from truenorm.kernels.backend import Backward, ColumnSums, ColumnSweep, RowSums
from truenorm.kernels.call import Call
from truenorm.kernels.rounding import Tested
from truenorm.kernels.rows import Rows, Source
from truenorm.kernels.special import SpecialSum, infinite_terms
from truenorm.kernels.storage import widen
from truenorm.kernels.sweeping import summed

__all__ = ["SpecialColumns", "round_dbeta", "round_dgamma"]

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
    if call.of_gamma is None:
        return None
    rules = None if special is None else special.dgamma
    tested = _decided(sums.dgamma, call.of_gamma, rules, level.dgamma_again, dy, x)
    dgamma = widen(tested.values, call.of_gamma)
    left = np.flatnonzero(tested.refused)
    if len(left):
        dgamma[left] = integers.column_sums(dy, x, left, call, call.of_gamma)
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
    if call.of_beta is None:
        return None
    rules = None if special is None else special.dbeta
    tested = _decided(sums.dbeta, call.of_beta, rules, level.dbeta_again, dy, x)
    dbeta = widen(tested.values, call.of_beta)
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
        tested.refused[~rules.none] = False
    left = np.flatnonzero(tested.refused)
    while len(left) and (sweep := again(left)) is not None:
        better = summed(sweep, Source(dy), Source(x)).rounded(target)
        tested.values[sweep.columns] = better.values
        tested.refused[sweep.columns] = better.refused
        left = left[len(sweep.columns) :]
    return tested
