"""The natural scales of grouped norms: the scales of a unit, times the scales of gates."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from truenorm.verify.norms.grouped.formulas import given_of
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.scales import magnitudes
from truenorm.verify.operation import Case
from truenorm.verify.types import FORMATS, Float64s, unit_roundoff

LARGEST_EXPONENT = 700.0  # of exp in float64


class GroupedScales:
    """The natural scales of one case: see `truenorm.verify.operation.Scales`.

    Arrays have the axes of the formula: rows, and the axes of a row.
    """

    def __init__(self, norm: Norm, case: Case, exact: Mapping[str, Float64s]) -> None:
        once = case.part(slice(case.shape[0] // case.repeats))
        self._norm, self._rows = norm, case.shape[0]
        self._known: dict[tuple[str, int], Float64s] = {}
        geometry = self._geometry = norm.geometry(once)
        self._unit = geometry.without(geometry.units)
        given = self._given = given_of(norm, once, geometry)
        self._least = 2.0 ** FORMATS[case.dtype].quantum / unit_roundoff(case.dtype)
        # 1/(1 + exp(-z)) is 0 in float32 where exp overflows.
        smallest = -1022 if case.dtype == "float64" else -126
        self._underflow = 2.0**smallest / unit_roundoff(case.dtype)
        self._r = exact["r"].reshape(-1, *geometry.shape(geometry.units))
        self._xhat = np.abs(exact["xhat"]).reshape(-1, *geometry.shape(geometry.axes))
        absent = {"gamma": float(norm.gain == "plain"), "beta": 0.0, "scale": 0.0, "shift": 0.0}
        at = {name: np.full(1, value) for name, value in absent.items()} | given
        zero = np.zeros_like(given["eps"])
        self._dy, self._dsum = (magnitudes(given.get(name, zero)) for name in ("dy", "dsum"))
        self._gain = magnitudes(at["gamma"] + (norm.gain == "zero-centred"))
        self._beta, self._shift_size = magnitudes(at["beta"]), magnitudes(at["shift"])
        self._factor = magnitudes(1 + at["scale"])
        self._rho = self._rms(self._xhat) + self._least * self._r
        # The change of xhat by the rounding of a mean or, without a mean, of x.
        self._move = self._rho if norm.centred else self._least * self._r
        self._x = magnitudes(given["x"])
        kappa = self._rms(self._x) * self._r if norm.centred else np.ones_like(self._r)
        self._kappa = kappa
        self.kappa = kappa.reshape(len(once.x), -1).max(axis=1, keepdims=True)
        self._gate = self._slope = self._gate_kappa = self._mean_kappa = np.ones(1)
        if norm.gate:
            self._set_gate()

    def _rms(self, values: Float64s) -> Float64s:
        """Return the root mean square of each unit, without overflow of squares."""
        largest = np.abs(values).max(axis=self._unit, keepdims=True, initial=0.0)
        safe = np.where(largest > 0, largest, 1.0)
        root: Any = np.sqrt(((values / safe) ** 2).mean(axis=self._unit, keepdims=True))
        return np.asarray(largest * root)

    @np.errstate(all="ignore")
    def _set_gate(self) -> None:
        """Compute the size, the slope and the condition number of the gate.

        Kernels compute 1 - sigma as written, so that both terms count, not the difference.
        """
        norm = self._norm
        z = self._given["z"] if norm.gates_by_z else self._modulated(0)
        z = np.nan_to_num(z, posinf=LARGEST_EXPONENT, neginf=-LARGEST_EXPONENT)
        sigma = 1 / (1 + np.exp(-np.clip(z, -LARGEST_EXPONENT, LARGEST_EXPONENT)))
        if norm.gate == "self":  # of either sign: the scale of z is an upper bound
            sigma = np.ones_like(z)
        sigma = sigma + self._underflow
        size = np.abs(z)
        self._gate_kappa = 1 + size * (1 - sigma) if norm.gate != "self" else 1 + size
        silu = norm.activation == "silu"
        self._gate = size * sigma if silu else sigma
        self._slope = sigma * (1 + size) if silu else sigma
        weights = self._xhat**2 if norm.gate_first else np.ones_like(self._xhat)
        total = weights.sum(axis=self._unit, keepdims=True)
        safe = np.where(total > 0, total, 1.0)
        weighted = weights * self._gate_kappa
        self._mean_kappa = weighted.sum(axis=self._unit, keepdims=True) / safe

    def terms(self, output: str) -> int:
        """Return how many numbers are summed: along a unit, or over rows for columns."""
        geometry, size = self._geometry, self._geometry.unit_size
        along = self._rows * geometry.count * size // max(geometry.width, 1)
        sums = {"dgamma": along + size, "dbeta": along, "sum": 1}
        units = geometry.count * size // max(geometry.width, 1)
        return {**sums, "dscale": units + size, "dshift": units}.get(output, size)

    def _xhat_sizes(self, power: int) -> Float64s:
        growth = (1 + self._kappa) ** power
        sizes = (self._xhat + self._move) * growth + (self._kappa**power if power else 0.0)
        return sizes * (self._gate_kappa + self._mean_kappa) if self._norm.gate_first else sizes

    def _normalized(self, power: int) -> Float64s:
        """Return the scale of n."""
        return self._gain * self._xhat_sizes(power) + (self._beta + self._least)

    def _modulated(self, power: int) -> Float64s:
        """Return the scale of m."""
        return self._normalized(power) * self._factor + self._shift_size

    def of(self, output: str, power: int = 0) -> Float64s:
        """Return the scale of each element, for errors that grow like this power of kappa."""
        place = output, power if self._norm.centred else 0
        if place not in self._known:
            self._known[place] = self._of(*place)
        return self._known[place]

    def _of(self, output: str, power: int) -> Float64s:
        norm, geometry, rows = self._norm, self._geometry, len(self._xhat)
        after = bool(norm.gate) and not norm.gate_first
        if output == "sum":
            return np.zeros((rows, geometry.count * geometry.unit_size))
        arriving = self._dy
        if after:
            slope = self._slope if norm.gate == "self" else self._gate
            arriving = self._dy * slope * self._gate_kappa + self._least
        e = arriving * self._factor + (self._least if norm.modulate else 0.0)
        if output in ("dgamma", "dbeta"):
            terms = e if output == "dbeta" else e * self._xhat_sizes(power) + self._least
            axes = (0, *geometry.without(geometry.columns))
            return np.asarray(self._all(terms).sum(axis=axes)).reshape(-1)
        if output in ("dscale", "dshift"):
            of_scale = output == "dscale"
            terms = arriving * self._normalized(power) + self._least if of_scale else arriving
            summed = self._all(terms).sum(axis=geometry.without(geometry.columns))
            return np.asarray(summed).reshape(rows, -1)
        return self._all(self._of_element(output, power, e)).reshape(rows, -1)

    def _all(self, values: Float64s) -> Float64s:
        """Return a number for each element."""
        return np.broadcast_to(values, self._xhat.shape)

    def _of_element(self, output: str, power: int, e: Float64s) -> Float64s:
        norm = self._norm
        after = norm.gates_by_z and not norm.gate_first
        m = self._modulated(power)
        if output == "y":
            if norm.gate == "self":
                return m * self._gate_kappa + self._least
            return m * self._gate * self._gate_kappa + self._least if after else m
        if output == "dz" and after:
            return self._dy * m * self._slope * self._gate_kappa + self._least
        g = self._gain * e + self._least
        projection = self._rms(g) * self._rho * (self._move + self._xhat)
        mean_g = g.mean(axis=self._unit, keepdims=True) if norm.centred else 0.0
        growth = (1 + self._kappa) ** power
        du = self._r * (g + mean_g + projection) * growth
        if not norm.gate_first:
            return du + self._dsum
        du = du * (self._gate_kappa + self._mean_kappa)
        factor = self._gate if output == "dx" else self._x * self._slope
        return du * factor * self._gate_kappa + self._least
