"""The natural scales of a norm, the errors of a good algorithm (docs/reference/grades.md)."""

from collections.abc import Mapping

import numpy as np

from truenorm.verify.norms.norm import Norm
from truenorm.verify.operation import Case
from truenorm.verify.types import FORMATS, Array, Float64s, unit_roundoff


def root_mean_square(rows: Float64s) -> Float64s:
    """Return one number for each row, as a column, without overflow of squares."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    mean = ((rows / safe) ** 2).mean(axis=1, keepdims=True)
    root: Float64s = largest * np.sqrt(mean)
    return root


def magnitudes(array: Array) -> Float64s:
    """Return magnitudes in float64; 0 where the array is not finite."""
    wide: Float64s = np.abs(array.astype(np.float64))
    return np.where(np.isfinite(wide), wide, 0.0)


class NormScales:
    """The natural scales of one case: see `truenorm.verify.operation.Scales`."""

    def __init__(self, norm: Norm, case: Case, exact: Mapping[str, Float64s]) -> None:
        self._centred = centred = norm.centred
        self._xhat, self._r = np.abs(exact["xhat"]), exact["r"]
        rows, size = self._shape = case.shape
        once = rows // case.repeats
        # The smallest number as a rounding error of relative size u, for x and for results.
        self._least = 2.0 ** FORMATS[case.dtype].quantum / unit_roundoff(case.dtype)
        types = (case.dtype, norm.type_of("y", case.dtype))
        quantum = max(FORMATS[each].quantum for each in types)
        self._least_y = 2.0**quantum / max(map(unit_roundoff, types))
        x = magnitudes(norm.normalized(case)[:once])
        gradients = (case.rows.get(name) for name in ("dy", "dsum"))
        self._dy, self._dsum = (
            np.zeros(1) if each is None else magnitudes(each[:once]) for each in gradients
        )
        gamma, beta = case.gamma, case.inputs.get("beta")
        if norm.gain == "zero-centred" and gamma is not None:
            gamma = 1.0 + gamma.astype(np.float64)
        self._gain = np.ones(size) if gamma is None else magnitudes(gamma)
        self._beta = np.zeros(size) if beta is None else magnitudes(beta)
        self._rho = root_mean_square(self._xhat) + self._least * self._r
        # The change of xhat by the rounding of a mean or, without a mean, of x.
        self._shift = self._rho if centred else self._least * self._r
        self.kappa = root_mean_square(x) * self._r if centred else np.ones_like(self._r)

    def terms(self, output: str) -> int:
        """Return how many numbers are summed: along a row, or over rows for columns."""
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
        sizes = (self._xhat + self._shift) * growth + (self.kappa**power if power else 0.0)
        if output == "dgamma":
            scale = (self._dy * sizes + self._least).sum(axis=0)
            return scale
        if output == "y":
            scale = self._gain * sizes + (self._beta + self._least_y)
            return scale
        g = self._gain * self._dy + self._least
        projection = root_mean_square(g) * self._rho * (self._shift + self._xhat)
        mean_g = g.mean(axis=1, keepdims=True) if self._centred else 0.0
        scale = self._r * (g + mean_g + projection) * growth + self._dsum
        return scale
