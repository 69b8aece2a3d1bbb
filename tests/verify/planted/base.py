"""A right layer or RMS normalization in steps, so that a planted bug is one step done wrong.

It is right for float16, bfloat16 and float32: everything is computed in float64 from the inputs
as they are, and rounded once at the end. `wide.py` has what float64 data needs more.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from truenorm.verify.types import Array, Float64s

Results = tuple[Array, Array | None, Array | None]


@dataclass(frozen=True, eq=False)
class Saved:
    """The caller's arrays, and for each row mean + rest, the mean as a pair, and rstd."""

    x: Array
    gamma: Array | None
    beta: Array | None
    mean: Float64s
    rest: Float64s
    rstd: Float64s


class Kernel:
    """Forward and backward; every other method is a step that a planted bug may replace.

    What is not `centred` is an RMS normalization: its mean is 0, as is that of its gradient.
    """

    centred = True

    def forward(
        self, x: Array, gamma: Array | None, beta: Array | None, eps: float
    ) -> tuple[Array, Any]:
        with np.errstate(all="ignore"):
            saved = self.statistics(x, gamma, beta, eps)
            y = self.output(saved)
            return self.cast(y, x).reshape(x.shape), self.kept(saved)

    def backward(self, dy: Array, saved: Any) -> Results:
        with np.errstate(all="ignore"):
            slopes, gamma, xhat = self.rows_of(dy), self.gamma(saved), self.recalled(saved)
            dx = self.project(slopes, gamma, xhat, saved)
            # Infinities would cancel or not as it happens: such a row has no gradient at all.
            finite = (np.isfinite(slopes) & np.isfinite(gamma)).all(axis=-1)
            dx[~finite] = np.nan
            dgamma, dbeta = self.dgamma(slopes, xhat, saved), self.dbeta(slopes)
            return (
                self.cast(dx, dy).reshape(dy.shape),
                None if saved.gamma is None else self.cast(dgamma, saved.gamma),
                None if saved.beta is None else self.cast(dbeta, saved.beta),
            )

    # What goes in and out.

    def rows_of(self, array: Array) -> Float64s:
        return array.astype(np.float64, order="C").reshape(-1, array.shape[-1])

    def cast(self, values: Float64s, like: Array) -> Array:
        return values.astype(like.dtype)

    def gamma(self, saved: Saved) -> Float64s:
        return (
            np.ones(saved.x.shape[-1]) if saved.gamma is None else saved.gamma.astype(np.float64)
        )

    def beta(self, saved: Saved) -> Float64s:
        return np.zeros(saved.x.shape[-1]) if saved.beta is None else saved.beta.astype(np.float64)

    # Sums.

    def total(self, values: Float64s, axis: int) -> Float64s:
        return np.asarray(values.sum(axis=axis))

    def mean_of(self, rows: Float64s) -> Float64s:
        means: Float64s = self.total(rows, -1)[:, np.newaxis] / rows.shape[-1]
        return means

    def over_rows(self, terms: Float64s) -> Float64s:
        return self.total(terms, 0)

    # The steps of forward.

    def statistics(self, x: Array, gamma: Array | None, beta: Array | None, eps: float) -> Saved:
        rows = self.rows_of(x)
        mean, rest = self.mean(rows)
        centred = (rows - mean) - rest
        rstd = self.rstd(self.variance(rows, centred), eps)
        return Saved(x, gamma, beta, mean, rest, rstd)

    def mean(self, rows: Float64s) -> tuple[Float64s, Float64s]:
        if not self.centred:
            return np.zeros((len(rows), 1)), np.zeros((len(rows), 1))
        mean = self.mean_of(rows)
        return mean, self.mean_of(rows - mean)

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:  # noqa: ARG002 bugs use rows
        return self.mean_of(centred * centred)

    def rstd(self, variance: Float64s, eps: Any) -> Float64s:
        return np.asarray(1 / np.sqrt(variance + eps))

    def xhat(self, saved: Saved) -> Float64s:
        return ((self.rows_of(saved.x) - saved.mean) - saved.rest) * saved.rstd

    def output(self, saved: Saved) -> Float64s:
        return self.gamma(saved) * self.xhat(saved) + self.beta(saved)

    def kept(self, saved: Saved) -> Saved:
        """Return what backward is given."""
        return saved

    # The steps of backward.

    def recalled(self, saved: Saved) -> Float64s:
        """Return xhat from what was kept."""
        return self.xhat(saved)

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        g = gamma * slopes
        kept = g - self.mean_of(g) if self.centred else g
        return saved.rstd * (kept - xhat * self.mean_of(g * xhat))

    def dgamma(self, slopes: Float64s, xhat: Float64s, saved: Saved) -> Float64s:  # noqa: ARG002
        return self.over_rows(slopes * xhat)

    def dbeta(self, slopes: Float64s) -> Float64s:
        return self.over_rows(slopes)


def to_24_bits(values: Float64s) -> Float64s:
    """Round to the precision of float32, with the range of float64."""
    return to_bits(values, 24)


def to_bits(values: Float64s, bits: int) -> Float64s:
    """Round to so many digits, with the range of float64."""
    fractions, exponents = np.frexp(values)
    rounded: Float64s = np.ldexp(np.rint(np.ldexp(fractions, bits)), exponents - bits)
    return rounded
