"""The natural scales of grouped norms: those of a unit, times those of gates."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.operations.grouped.formulas import MODULATION
from truenorm.verify.operations.scales import magnitudes, root_mean_square
from truenorm.verify.types import FORMATS, Float64s, unit_roundoff

if TYPE_CHECKING:
    from truenorm.verify.operations.grouped.norm import GroupedNorm

OF_SAMPLES = tuple(f"d{name}" for name in MODULATION)
"""Results that are sums over the units of a row."""
LARGEST_EXPONENT = 700.0  # of exp in float64


class GroupedScales:
    """The natural scales of one case: see `truenorm.verify.operation.Scales`."""

    def __init__(self, case: Case, exact: Mapping[str, Float64s], norm: "GroupedNorm") -> None:
        once = case.part(slice(case.shape[0] // case.repeats))
        self._norm, self._rows = norm, case.shape[0]
        self._case, geometry = once, norm.geometry(once)
        self._geometry = geometry
        self._least = 2.0 ** FORMATS[case.dtype].quantum / unit_roundoff(case.dtype)
        # 1/(1 + exp(-z)) is 0 in float32 where exp overflows.
        smallest = -1022 if case.dtype == "float64" else -126
        self._underflow = 2.0**smallest / unit_roundoff(case.dtype)
        self._r = exact["r"].reshape(-1, 1)
        self._xhat = np.abs(geometry.units_of(exact["xhat"]))
        self._dy, self._dsum = (
            magnitudes(self._units(name)) if name in case.inputs else np.zeros((1, 1))
            for name in ("dy", "dsum")
        )
        offset = 1.0 if norm.gain == "zero-centred" else 0.0
        self._gain = magnitudes(self._columns("gamma", 1.0 - offset) + offset)
        self._beta = magnitudes(self._columns("beta", 0.0))
        self._factor = magnitudes(1 + self._columns("scale", 0.0))
        self._shift_size = magnitudes(self._columns("shift", 0.0))
        self._rho = root_mean_square(self._xhat) + self._least * self._r
        # The change of xhat by the rounding of a mean or, without one, by that of x.
        self._move = self._rho if norm.centred else self._least * self._r
        x = magnitudes(geometry.units_of(norm.normalized(once)))
        self._x = x
        kappa = root_mean_square(x) * self._r if norm.centred else np.ones_like(self._r)
        self._kappa = kappa
        self.kappa = kappa.reshape(len(once.x), -1).max(axis=1, keepdims=True)
        self._gate = self._slope = self._gate_kappa = self._mean_kappa = np.ones((1, 1))
        if norm.gate:
            self._set_gate()

    def _units(self, name: str) -> Float64s:
        """Return an input of rows by unit."""
        return self._geometry.units_of(self._case.rows[name].astype(np.float64))

    def _columns(self, name: str, default: float) -> Float64s:
        """Return a parameter or a modulation for each element of each unit, or one number."""
        array = self._case.inputs.get(name)
        wide = None if array is None else array.astype(np.float64)
        spread = self._geometry.of_columns(wide, default)
        count = self._case.shape[0] * self._geometry.count
        return spread if len(spread) == 1 else np.resize(spread, (count, self._geometry.unit_size))

    @np.errstate(all="ignore")
    def _set_gate(self) -> None:
        """Compute the size, the slope and the condition number of the gate.

        Kernels compute 1 - sigma as it stands, so that its terms count, not their sum.
        """
        norm = self._norm
        z = self._units("z") if norm.gates_by_z else self._modulated(0)
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
        total = weights.sum(axis=1, keepdims=True)
        safe = np.where(total > 0, total, 1.0)
        self._mean_kappa = (weights * self._gate_kappa).sum(axis=1, keepdims=True) / safe

    def terms(self, output: str) -> int:
        """Return how many numbers are summed: along a unit, and for columns over rows."""
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
        norm, power = self._norm, power if self._norm.centred else 0
        after = bool(norm.gate) and not norm.gate_first
        count, size = len(self._xhat), self._geometry.unit_size
        if output == "sum":
            return np.zeros_like(self._geometry.rows_of(self._xhat))
        arriving = self._dy
        if after:
            slope = self._slope if norm.gate == "self" else self._gate
            arriving = self._dy * slope * self._gate_kappa + self._least
        e = arriving * self._factor + (self._least if norm.modulate else 0.0)
        terms = {
            "dgamma": lambda: e * self._xhat_sizes(power) + self._least,
            "dbeta": lambda: e,
            "dscale": lambda: arriving * self._normalized(power) + self._least,
            "dshift": lambda: arriving,
        }
        if output in terms:
            full = np.broadcast_to(terms[output](), (count, size))
            return self._summed(full, output)
        scale = self._of_element(output, power, e)
        rows: Float64s = self._geometry.rows_of(np.broadcast_to(scale, (count, size)))
        return rows

    def _summed(self, terms: Float64s, output: str) -> Float64s:
        geometry = self._geometry
        rows = terms.reshape(-1, geometry.count * geometry.unit_size)[:, geometry.by_column]
        summed: Float64s = rows.sum(axis=2)
        return summed if output in OF_SAMPLES else summed.sum(axis=0)

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
        projection = root_mean_square(g) * self._rho * (self._move + self._xhat)
        if norm.divisor == "sum":  # xhat is smaller, and its products are not divided
            projection = projection * self._geometry.unit_size
        mean_g = g.mean(axis=1, keepdims=True) if norm.centred else 0.0
        growth = (1 + self._kappa) ** power
        du = self._r * (g + mean_g + projection) * growth
        if not norm.gate_first:
            return du + self._dsum
        du = du * (self._gate_kappa + self._mean_kappa)
        factor = self._gate if output == "dx" else self._x * self._slope
        return du * factor * self._gate_kappa + self._least
