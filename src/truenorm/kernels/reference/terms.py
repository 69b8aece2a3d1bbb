"""The terms of dgamma, each rounded to the unit of its row: in double-double, then integers."""

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels import double_double as dd
from truenorm.kernels.call import Call
from truenorm.kernels.ground import DONE, HIGH, MOST_ROWS, REFUSED, SLACK, TINY, W
from truenorm.kernels.lattice.terms import AfterLevel, TermSums, exact_terms
from truenorm.kernels.lattice.units import NO_TERMS, units
from truenorm.kernels.reference import pairs
from truenorm.kernels.reference.sweep import PAIR_BLOCK
from truenorm.kernels.rows import blocks_of
from truenorm.kernels.storage import Stored, widen

__all__ = ["Terms"]

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]
States = NDArray[np.uint8]


class Terms(AfterLevel):
    """dgamma of a call on the lattice."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._rows = min(max(1, PAIR_BLOCK // call.size), MOST_ROWS)

    def sums(self) -> TermSums:
        """Return sums over no rows."""
        return TermSums(self._call.size)

    def add(self, dy: Stored, x: Stored, states: States | None, sums: TermSums) -> None:
        """Add a block of rows with a result and finite dy; or those of it that are such."""
        call = self._call
        if states is not None:
            some = (states == DONE) | (states == REFUSED)
            dy, x = dy[some], x[some]
        for start, stop in blocks_of((0, len(x)), self._rows):
            slopes, values = (widen(part[start:stop], call.target) for part in (dy, x))
            unit = units(slopes, values, call.eps, call.norm)
            there = unit != NO_TERMS
            if there.any():
                high, low = _rounded(slopes[there], values[there], unit[there], call)
                sums.add_rows(high, low, unit[there])


def _rounded(dy: Float64, x: Float64, unit: Integers, call: Call) -> tuple[Float64, Float64]:
    """Return the terms in units: high*2**HIGH + low."""
    rows = pairs.describe(x, call)
    dy_part, dy_exponent = np.frexp(dy)
    t = dd.multiply_float(dd.multiply(rows.c, rows.r), dy_part)
    shift = rows.exponent - rows.w_exponent + dy_exponent - unit[:, np.newaxis]
    t = pairs.scaled(t, shift)
    bound = SLACK * (
        np.abs(t[0]) * (rows.r_bound + 16 * W)
        + np.ldexp(np.abs(dy_part) * (rows.r[0] * rows.centring), pairs.clipped(shift))
    )  # (P10)
    high = np.rint(t[0] * 2.0**-HIGH)
    rest, error = dd.two_sum(t[0] - high * 2.0**HIGH, t[1])
    low = np.rint(rest)
    left = np.abs((rest - low) + error)
    refused = ~(left <= 0.5 - (bound + TINY + 2.0**-50))  # (L3)
    for i in np.flatnonzero(refused.any(axis=1)).tolist():
        columns = np.flatnonzero(refused[i])
        high[i, columns], low[i, columns] = exact_terms(dy[i], x[i], columns, int(unit[i]), call)
    return high, low
