"""Results that depend on infinities and NaN, and rows without a result.

Kernels see finite numbers only: zero replaces infinities and NaN in their inputs. The results
follow from IEEE rules on the exact xhat, of which only the sign matters, and are written last.
"""

import math

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import centred_signs
from truenorm.kernels.call import Call, Norm
from truenorm.kernels.rounding import round_to
from truenorm.kernels.rows import Stored, widen

Float64 = NDArray[np.float64]
Flags = NDArray[np.bool_]

IS_PLUS, IS_MINUS, IS_NAN = np.uint8(1), np.uint8(2), np.uint8(4)
"""Bits for +infinity, -infinity and NaN among the terms of a column."""


def clear_not_finite(x: Float64) -> Flags:
    """Set the rows with infinities or NaN to zero, and return them."""
    if math.isfinite(x.sum()):  # then so is every element
        return np.zeros(len(x), bool)
    undefined: Flags = np.logical_not(np.isfinite(x).all(axis=1))
    x[undefined] = 0.0
    return undefined


def no_spread(x: Float64, eps: float, norm: Norm) -> Flags:
    """Return the rows without a result because w = 0: constant ones, or zeros of RMSNorm."""
    if eps > 0:
        return np.zeros(len(x), bool)
    first = x[:, :1] if norm.centred else 0.0
    constant: Flags = np.logical_and.reduce(x == first, axis=1)
    return constant


def has_infinity(x: Float64) -> Flags:
    """Return the rows with an infinity and without NaN."""
    infinite, undefined = np.isinf(x).any(axis=1), np.isnan(x).any(axis=1)
    rows: Flags = np.logical_and(infinite, np.logical_not(undefined))
    return rows


def signs(x: Float64, norm: Norm) -> Float64:
    """Return the exact signs of xhat.

    In RMSNorm, infinities make r = 0: xhat is NaN at them and 0 elsewhere (D33).
    """
    if norm.centred:
        exact = [centred_signs(row) for row in x.tolist()]
        return np.array(exact, dtype=np.float64).reshape(x.shape)
    rows = has_infinity(x)[:, np.newaxis]
    return np.where(rows, np.where(np.isfinite(x), 0.0, np.nan), np.sign(x))


def special_columns(call: Call) -> Flags:
    """Return the columns in which gamma, beta or y = beta is not finite."""
    gamma, beta = call.gamma.values, call.beta.values
    special: Flags = ~(np.isfinite(gamma) & np.isfinite(beta))
    zero = gamma == 0
    if zero.any():
        special |= zero & ~np.isfinite(widen(round_to(beta, call.x_format), call.x_format))
    return special


def special_y(x: Float64, columns: Flags, call: Call) -> Stored:
    """Return y in the special columns."""
    gamma, beta = call.gamma.values[columns], call.beta.values[columns]
    y = gamma * signs(x, call.norm)[:, columns] + beta
    y[np.isnan(y)] = np.nan  # the canonical one
    return round_to(y, call.x_format)


def infinite_terms(dy: Float64, x: Float64, norm: Norm) -> Float64:
    """Return dy times the sign of c where dy is not finite, and 0 elsewhere."""
    terms = np.zeros_like(dy)
    for i in np.flatnonzero(~np.isfinite(dy).all(axis=1)):
        infinite = ~np.isfinite(dy[i])
        terms[i, infinite] = dy[i, infinite] * signs(x[i : i + 1], norm)[0, infinite]
    return terms


class SpecialSum:
    """Infinities and NaN among the terms of each column.

    Attributes
    ----------
    flags : ndarray
        Bits IS_PLUS, IS_MINUS and IS_NAN.
    """

    def __init__(self, columns: int) -> None:
        self.flags = np.zeros(columns, np.uint8)

    @classmethod
    def of_flags(cls, flags: NDArray[np.uint8]) -> "SpecialSum":
        """Return the sum with these flags."""
        special = cls(0)
        special.flags = flags
        return special

    def add(self, terms: Float64) -> None:
        """Add rows of terms."""
        self.flags[(terms == np.inf).any(axis=0)] |= IS_PLUS
        self.flags[(terms == -np.inf).any(axis=0)] |= IS_MINUS
        self.flags[np.isnan(terms).any(axis=0)] |= IS_NAN

    def set_nan(self) -> None:
        """Make every sum NaN: a row had no result."""
        self.flags |= IS_NAN

    @property
    def none(self) -> Flags:
        """True for the columns that have only finite terms."""
        none: Flags = self.flags == 0
        return none

    def apply(self, sums: Float64) -> None:
        """Write infinities and NaN to the columns that have them."""
        sums[self.flags == IS_PLUS] = np.inf
        sums[self.flags == IS_MINUS] = -np.inf
        sums[(self.flags & IS_NAN != 0) | (self.flags & 3 == 3)] = np.nan
