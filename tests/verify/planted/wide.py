"""The right kernel for float64 data, for which there is no wider type to compute in.

Sums are compensated, and rows, centred rows and gradients are scaled by powers of two of their
own, so that no square overflows or vanishes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from truenorm.verify.types import Array, Float64s
from verify.planted.base import Kernel, Saved

OF_ZERO = -9999  # an exponent below all others: zeros must not keep eps from being seen


def exponents(values: Float64s, axis: int) -> Any:
    """Return e with 2**(e-1) <= max|values| < 2**e, of the finite ones."""
    largest = np.where(np.isfinite(values), np.abs(values), 0).max(axis, initial=0, keepdims=True)
    return np.where(largest == 0, OF_ZERO, np.frexp(largest)[1])


def compensated_sum(values: Float64s, axis: int) -> Float64s:
    """Add in a tree of pairs; what each addition loses is exact, and is added at the end."""
    sums = np.moveaxis(values, axis, 0)
    lost = np.zeros_like(sums)
    if not len(sums):
        return np.zeros(sums.shape[1:])
    while len(sums) > 1:
        if len(sums) % 2:
            nothing = np.zeros_like(sums[:1])
            sums, lost = np.concatenate([sums, nothing]), np.concatenate([lost, nothing])
        half = len(sums) // 2
        a, b = sums[:half], sums[half:]
        sums = a + b
        of_b = sums - a
        lost = lost[:half] + lost[half:] + ((a - (sums - of_b)) + (b - of_b))
    # Infinity minus infinity was lost, too; the plain sum is right then.
    total: Float64s = np.where(np.isfinite(sums[0]), sums[0] + lost[0], sums[0])
    return total


@dataclass(frozen=True, eq=False)
class WideSaved(Saved):
    """The mean is that of x/2**first, and rstd that of x/2**unit."""

    first: Any
    unit: Any


class WideKernel(Kernel):
    """The steps of `Kernel` that differ."""

    def total(self, values: Float64s, axis: int) -> Float64s:
        return compensated_sum(values, axis)

    def over_rows(self, terms: Float64s) -> Float64s:
        unit = exponents(terms, 0)
        total: Float64s = np.ldexp(super().over_rows(np.ldexp(terms, -unit)), unit[0])
        return total

    def statistics(
        self, x: Array, gamma: Array | None, beta: Array | None, eps: float
    ) -> WideSaved:
        rows = self.rows_of(x)
        first = exponents(rows, -1)
        rows = np.ldexp(rows, -first)
        mean, rest = self.mean(rows)
        centred = (rows - mean) - rest
        of_eps = np.frexp(eps)[1] // 2 if eps else OF_ZERO
        unit = np.maximum(first + exponents(centred, -1), of_eps)
        variance = self.variance(rows, np.ldexp(centred, first - unit))
        rstd = self.rstd(variance, np.ldexp(eps, -2 * unit))
        return WideSaved(x, gamma, beta, mean, rest, rstd, first, unit)

    def scaled_xhat(self, saved: Saved) -> tuple[Float64s, Any]:
        """Return rows and exponents: xhat is rows*2**exponents, of which none is lost."""
        assert isinstance(saved, WideSaved)
        rows = np.ldexp(self.rows_of(saved.x), -saved.first)
        centred = (rows - saved.mean) - saved.rest
        own = exponents(centred, -1)
        return np.ldexp(centred, -own) * saved.rstd, saved.first + own - saved.unit

    def xhat(self, saved: Saved) -> Float64s:
        xhat: Float64s = np.ldexp(*self.scaled_xhat(saved))
        return xhat

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        assert isinstance(saved, WideSaved)
        of_slopes, of_gamma = exponents(slopes, -1), exponents(gamma, -1)
        scaled = super().project(
            np.ldexp(slopes, -of_slopes), np.ldexp(gamma, -of_gamma), xhat, saved
        )
        dx: Float64s = np.ldexp(scaled, of_slopes + of_gamma - saved.unit)
        return dx

    def dgamma(self, slopes: Float64s, xhat: Float64s, saved: Saved) -> Float64s:  # noqa: ARG002
        rows, places = self.scaled_xhat(saved)
        place, unit = places.max(initial=OF_ZERO), exponents(slopes, 0)
        terms = np.ldexp(slopes, -unit) * np.ldexp(rows, places - place)
        dgamma: Float64s = np.ldexp(self.over_rows(terms), unit[0] + place)
        return dgamma
