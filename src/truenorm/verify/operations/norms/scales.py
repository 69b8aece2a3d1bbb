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

Where no mean is subtracted, nothing moves xhat: rho beside |xhat|, mean|g| and rho^2 fall away,

    y       |gamma||xhat|
    dx      r*(|g| + G*rho*|xhat|)
    dgamma  sum of |dy||xhat|

kappa is 1, and no power of it explains more than none.

For rows far below sqrt(eps), rho and not 1 stands here: with 1, a result of zeros would pass. And
where numbers are subnormal, u times a number is not less than the smallest one: hence `_least`.
"""

from collections.abc import Mapping

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.operations.norms.definition import Definition
from truenorm.verify.types import FORMATS, Array, Float64s, unit_roundoff

__all__ = ["NormScales"]


def _root_mean_square(rows: Float64s) -> Float64s:
    """Return one number for each row, as a column; squares do not overflow."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    mean = ((rows / safe) ** 2).mean(axis=1, keepdims=True)
    root: Float64s = largest * np.sqrt(mean)
    return root


def _wide(array: Array | None, size: int, absent: float) -> Float64s:
    """Return sizes in float64, with 0 for what is not finite: no scale comes from there."""
    if array is None:
        return np.full(size, absent)
    wide: Float64s = np.abs(array.astype(np.float64))
    return np.where(np.isfinite(wide), wide, 0.0)


class NormScales:
    """The natural scales of one case: see `truenorm.verify.operation.Scales`."""

    def __init__(self, case: Case, exact: Mapping[str, Float64s], norm: Definition) -> None:
        self._centred = centred = norm.centred
        self._xhat, self._r = np.abs(exact["xhat"]), exact["r"]
        rows, size = self._shape = case.shape
        once = rows // case.repeats
        # A rounding error of the smallest number, as if it were one of relative size u.
        self._least = 2.0 ** FORMATS[case.dtype].quantum / unit_roundoff(case.dtype)
        x = _wide(norm.normalized(case)[:once], size, 0.0)
        self._dy = _wide(case.dy[:once], size, 0.0)
        arriving = case.inputs.get("dsum")
        self._dsum = 0.0 if arriving is None else _wide(arriving[:once], size, 0.0)
        self._gamma = _wide(case.gamma, size, 1.0)
        if norm.gain == "zero-centred" and case.gamma is not None:
            self._gamma = _wide(1.0 + case.gamma.astype(np.float64), size, 1.0)
        self._beta = _wide(case.inputs.get("beta"), size, 0.0)
        self._rho = _root_mean_square(self._xhat) + self._least * self._r
        # What the rounding of a mean moves xhat by; without one, what that of x does.
        self._moves = self._rho if centred else self._least * self._r
        self.kappa = _root_mean_square(x) * self._r if centred else np.ones_like(self._r)

    def terms(self, output: str) -> int:
        """Return how many numbers are added up: along a row, and for columns over rows."""
        rows, size = self._shape
        along = dict.fromkeys(("y", "dx", "dresidual"), size)
        return {**along, "sum": 1, "dgamma": rows + size, "dbeta": rows}[output]

    def of(self, output: str, power: int = 0) -> Float64s:
        """Return the scale of each element, for errors that grow like this power of kappa."""
        scale: Float64s
        if output == "dbeta":
            scale = self._dy.sum(axis=0)
            return scale
        if output == "sum":  # one rounding, which an ulp covers
            return np.zeros_like(self._xhat)
        power = power if self._centred else 0
        growth = (1 + self.kappa) ** power
        sizes = (self._xhat + self._moves) * growth + (self.kappa**power if power else 0.0)
        if output == "dgamma":
            scale = (self._dy * sizes + self._least).sum(axis=0)
            return scale
        if output == "y":
            scale = self._gamma * sizes + (self._beta + self._least)
            return scale
        g = self._gamma * self._dy + self._least
        along = _root_mean_square(g) * self._rho * (self._moves + self._xhat)
        of_mean = g.mean(axis=1, keepdims=True) if self._centred else 0.0
        scale = self._r * (g + of_mean + along) * growth + self._dsum
        return scale
