"""How large an error may be: the natural scale of each result, and the condition of each row.

With rho = sqrt(v/w), kappa = rms(x)*r and G = rms(g), an algorithm is *stable* if its errors are
at most an ulp plus K*u times

    y       |gamma|(|xhat| + rho) + |beta|
    dx      r*(|g| + mean|g| + G*rho*(rho + |xhat|))
    dgamma  sum of |dy|(|xhat| + rho)
    dbeta   sum of |dy|

whatever kappa is. One that rounds the mean once has a mean that is off by u*rms(x), so that xhat
is off by u*kappa; a one-pass variance is off by u*rms(x)^2, so that r is off by u*kappa^2 of
itself. Hence, for a power p of kappa, |xhat| + rho becomes (|xhat| + rho)(1 + kappa)^p + kappa^p.

A column added up one by one can be off by u for each of its n terms, where a stable sum is off by
about sqrt(n): that, too, is allowed from p = 1 on, as long as a digit is left.

For rows far below sqrt(eps), rho and not 1 stands here: with 1, a result of zeros would pass. And
where numbers are subnormal, u times a number is not less than the smallest one: hence `_least`.
"""

import math

import numpy as np

from truenorm.verify.inputs import Case
from truenorm.verify.types import FORMATS, Array, Float64s, unit_roundoff

__all__ = ["Scales"]

SINGLE = 2.0**-24
DIGITS_LEFT = 1 / 8
"""The error, relative to the scale, at which a sum that was added up one by one is no sum."""


def _root_mean_square(rows: Float64s) -> Float64s:
    """Return one number for each row, as a column; squares do not overflow."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    mean = ((rows / safe) ** 2).mean(axis=1, keepdims=True)
    root: Float64s = largest * np.sqrt(mean)
    return root


def _wide(array: Array | None, size: int, absent: float) -> Float64s:
    """Return an array in float64, with 0 for what is not finite: no scale comes from there."""
    if array is None:
        return np.full(size, absent)
    wide: Float64s = array.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0.0)


class Scales:
    """The natural scales of one case, from r and xhat of its rows, those that are repeated once.

    Attributes
    ----------
    kappa : ndarray of shape (rows, 1)
        The condition number of each row.
    """

    def __init__(self, case: Case, r: Float64s, xhat: Float64s) -> None:
        once, size = xhat.shape
        self._repeats = case.repeats
        self._shape = case.x.shape
        self._unit = unit_roundoff(case.dtype)
        # A rounding error of the smallest number, as if it were one of relative size u.
        self._least = 2.0 ** FORMATS[case.dtype].quantum / self._unit
        x, self._dy = _wide(case.x[:once], size, 0.0), _wide(case.dy[:once], size, 0.0)
        self._gamma, self._beta = _wide(case.gamma, size, 1.0), _wide(case.beta, size, 0.0)
        self._xhat, self._r = np.abs(xhat), r
        self._rho = _root_mean_square(self._xhat) + self._least * self._r
        self.kappa = _root_mean_square(x) * self._r

    def factor(self, output: str, power: int = 0) -> float:
        """Return K: some roundings, and those of sums, which add up like the square root of n.

        Types of 16 bits are for storing: computed is in float32, so that there is little to
        round but the result, and sums cost next to nothing. Were it not so, a sum over many rows
        could be zero in bfloat16.
        """
        rows, size = map(int, self._shape)
        terms = {"y": size, "dx": size, "dgamma": rows + size, "dbeta": rows}[output]
        roundings = 8.0 if self._unit <= SINGLE else 3.0
        stable = roundings + math.sqrt(terms) / 4 * min(1.0, SINGLE / self._unit)
        if power and output in ("dgamma", "dbeta"):
            return max(stable, min(8.0 + rows, DIGITS_LEFT / self._unit))
        return stable

    def of(self, output: str, power: int = 0) -> Float64s:
        """Return the scale of each element, for errors that grow like this power of kappa."""
        scale: Float64s
        if output == "dbeta":
            scale = self._repeats * np.abs(self._dy).sum(axis=0)
            return scale
        growth = (1 + self.kappa) ** power
        sizes = (self._xhat + self._rho) * growth + (self.kappa**power if power else 0.0)
        if output == "dgamma":
            scale = self._repeats * (np.abs(self._dy) * sizes + self._least).sum(axis=0)
            return scale
        if output == "y":
            parameters = np.abs(self._beta) + self._least
            return self._tiled(np.abs(self._gamma) * sizes + parameters)
        g = np.abs(self._gamma * self._dy) + self._least
        along = _root_mean_square(g) * self._rho * (self._rho + self._xhat)
        return self._tiled(self._r * (g + g.mean(axis=1, keepdims=True) + along) * growth)

    def _tiled(self, rows: Float64s) -> Float64s:
        return np.tile(rows, (self._repeats, 1))
