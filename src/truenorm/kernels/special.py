"""Rows without a result, and numbers that are not finite: by rule, apart from the arithmetic.

Kernels see finite numbers only. What is not finite is replaced by zero before, and its results
are put in place afterwards: IEEE rules on the exact xhat, of which only the sign matters.
"""

import math

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat, centred_signs
from truenorm.kernels.call import Call, Norm, Parameter
from truenorm.kernels.rounding import round_to
from truenorm.kernels.rows import Stored, widen

__all__ = [
    "IS_NAN",
    "SpecialSum",
    "clear_not_finite",
    "has_infinity",
    "infinite_terms",
    "no_spread",
    "signs",
    "special_columns",
    "special_y",
]

Float64 = NDArray[np.float64]
Flags = NDArray[np.bool_]

IS_PLUS, IS_MINUS, IS_NAN = np.uint8(1), np.uint8(2), np.uint8(4)
"""Bits for +infinity, -infinity and NaN among the terms of a column."""


def special_columns(gamma: Parameter, beta: Parameter, target: FloatFormat) -> Flags:
    """Return the columns whose y is said by rule: gamma, beta or y = beta is not finite."""
    special: Flags = ~(np.isfinite(gamma.values) & np.isfinite(beta.values))
    zero = gamma.values == 0
    if zero.any():
        special |= zero & ~np.isfinite(widen(round_to(beta.values, target), target))
    return special


def clear_not_finite(x: Float64) -> Flags:
    """Put zeros into the rows that are not finite, and return which they are."""
    if math.isfinite(x.sum()):  # then so is every element, and there is nothing to look for
        return np.zeros(len(x), bool)
    undefined: Flags = np.logical_not(np.isfinite(x).all(axis=1))
    x[undefined] = 0.0
    return undefined


def no_spread(x: Float64, eps: float, norm: Norm) -> Flags:
    """Return the constant rows, or zero rows if not centred, if eps is 0: they have no result."""
    if eps > 0:
        return np.zeros(len(x), bool)
    first = x[:, :1] if norm.centred else 0.0
    without: Flags = np.logical_and.reduce(x == first, axis=1)
    return without


def has_infinity(x: Float64) -> Flags:
    """Return the rows with an infinity and without NaN."""
    infinite, undefined = np.isinf(x).any(axis=1), np.isnan(x).any(axis=1)
    found: Flags = np.logical_and(infinite, np.logical_not(undefined))
    return found


def signs(x: Float64, norm: Norm) -> Float64:
    """Return the exact signs of xhat, row by row.

    Where rows are not centred, infinities make r = 0: they have no xhat, all others 0 (D33).
    """
    if norm.centred:
        found = [centred_signs(row) for row in x.tolist()]
        return np.array(found, dtype=np.float64).reshape(x.shape)
    rows = has_infinity(x)[:, np.newaxis]
    return np.where(rows, np.where(np.isfinite(x), 0.0, np.nan), np.sign(x))


def special_y(x: Float64, gamma: Parameter, beta: Parameter, columns: Flags, call: Call) -> Stored:
    """Return y in the special columns."""
    y = gamma.values[columns] * signs(x, call.norm)[:, columns] + beta.values[columns]
    y[np.isnan(y)] = np.nan  # in its one form
    return round_to(y, call.x_format)


def infinite_terms(dy: Float64, x: Float64, norm: Norm) -> Float64:
    """Return dy times the sign of c where dy is not finite, and 0 elsewhere."""
    terms = np.zeros_like(dy)
    for i in np.flatnonzero(~np.isfinite(dy).all(axis=1)):
        infinite = ~np.isfinite(dy[i])
        terms[i, infinite] = dy[i, infinite] * signs(x[i : i + 1], norm)[0, infinite]
    return terms


class SpecialSum:
    """What becomes of a column with terms that are not finite."""

    def __init__(self, columns: int) -> None:
        self._plus = np.zeros(columns, bool)
        self._minus = np.zeros(columns, bool)
        self._nan = np.zeros(columns, bool)

    def add(self, terms: Float64) -> None:
        """Note the terms that are not finite."""
        self._plus |= (terms == np.inf).any(axis=0)
        self._minus |= (terms == -np.inf).any(axis=0)
        self._nan |= np.isnan(terms).any(axis=0)

    @property
    def none(self) -> NDArray[np.bool_]:
        """Which columns have no such terms."""
        return ~(self._plus | self._minus | self._nan)

    @property
    def flags(self) -> NDArray[np.uint8]:
        """One bit a column for each of +infinity, -infinity and NaN among its terms."""
        return self._plus * IS_PLUS | self._minus * IS_MINUS | self._nan * IS_NAN

    @classmethod
    def of_flags(cls, flags: NDArray[np.uint8]) -> "SpecialSum":
        """Return what has such flags."""
        found = cls(len(flags))
        found._plus, found._minus, found._nan = (
            (flags & bit) != 0 for bit in (IS_PLUS, IS_MINUS, IS_NAN)
        )
        return found

    def spoil(self) -> None:
        """Make every sum NaN: a row had no result."""
        self._nan[:] = True

    def apply(self, sums: Float64) -> None:
        """Put infinities and NaN into the columns that have them."""
        sums[self._plus] = np.inf
        sums[self._minus] = -np.inf
        sums[self._nan | (self._plus & self._minus)] = np.nan
