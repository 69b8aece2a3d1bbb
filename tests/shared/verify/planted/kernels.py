"""Correct layer norm and RMSNorm kernels in steps: a planted bug replaces one step.

`Kernel` is correct for float16, bfloat16 and float32: it computes in float64 and rounds once.
`WideKernel` is correct for float64 data.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from truenorm.verify.operations import RMS_NORM
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array, Float64s, dtype_of

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
            return self.cast(y, x).reshape(x.shape), self.to_save(saved)

    def backward(self, dy: Array, saved: Any) -> Results:
        with np.errstate(all="ignore"):
            rows, gamma, xhat = self.rows_of(dy), self.gamma(saved), self.xhat_of_saved(saved)
            dx = self.project(rows, gamma, xhat, saved)
            # Infinities would cancel or not as it happens: such a row has no gradient at all.
            finite = (np.isfinite(rows) & np.isfinite(gamma)).all(axis=-1)
            dx[~finite] = np.nan
            dgamma, dbeta = self.dgamma(rows, xhat, saved), self.dbeta(rows)
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

    def to_save(self, saved: Saved) -> Saved:
        """Return what is saved for backward."""
        return saved

    # The steps of backward.

    def xhat_of_saved(self, saved: Saved) -> Float64s:
        """Return xhat in backward."""
        return self.xhat(saved)

    def project(self, dy: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        g = gamma * dy
        centred = g - self.mean_of(g) if self.centred else g
        return saved.rstd * (centred - xhat * self.mean_of(g * xhat))

    def dgamma(self, dy: Float64s, xhat: Float64s, saved: Saved) -> Float64s:  # noqa: ARG002
        return self.over_rows(dy * xhat)

    def dbeta(self, dy: Float64s) -> Float64s:
        return self.over_rows(dy)


class Altered(Kernel):
    """A kernel with wrong steps: each is computed from the correct result and its arguments."""

    def __init__(self, **alterations: Callable[..., Any]) -> None:
        for step, alter in alterations.items():
            setattr(self, step, partial(self._alter, getattr(self, step), alter))

    @staticmethod
    def _alter(step: Callable[..., Any], alter: Callable[..., Any], *arguments: Any) -> Any:
        return alter(step(*arguments), *arguments)


BFLOAT16 = dtype_of("bfloat16")


def round_to(values: Float64s, dtype: Any) -> Float64s:
    return values.astype(dtype).astype(np.float64)


def to_24_bits(values: Float64s) -> Float64s:
    """Round to the precision of float32, with the range of float64."""
    return to_bits(values, 24)


def to_bits(values: Float64s, bits: int) -> Float64s:
    fractions, exponents = np.frexp(values)
    rounded: Float64s = np.ldexp(np.rint(np.ldexp(fractions, bits)), exponents - bits)
    return rounded


def read_contiguously(array: Array) -> Array:
    """Return what is read if the gaps between rows and elements are ignored."""
    size = array.itemsize
    strides = np.cumprod([size, *array.shape[:0:-1]])[::-1]
    return np.lib.stride_tricks.as_strided(array, array.shape, tuple(map(int, strides)))


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
    """A kernel for float64 data, for which there is no wider type.

    Sums are compensated. Rows, centred rows and gradients are scaled by powers of two of their
    own, so that no square overflows or underflows.
    """

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

    def project(self, dy: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        assert isinstance(saved, WideSaved)
        dy_exponents, gamma_type = exponents(dy, -1), exponents(gamma, -1)
        scaled = super().project(
            np.ldexp(dy, -dy_exponents), np.ldexp(gamma, -gamma_type), xhat, saved
        )
        dx: Float64s = np.ldexp(scaled, dy_exponents + gamma_type - saved.unit)
        return dx

    def dgamma(self, dy: Float64s, xhat: Float64s, saved: Saved) -> Float64s:  # noqa: ARG002
        rows, places = self.scaled_xhat(saved)
        place, unit = places.max(initial=OF_ZERO), exponents(dy, 0)
        terms = np.ldexp(dy, -unit) * np.ldexp(rows, places - place)
        dgamma: Float64s = np.ldexp(self.over_rows(terms), unit[0] + place)
        return dgamma


@dataclass(frozen=True)
class PlantedBug:
    """A wrong subject, and what the judge has to say of it where that is plain beforehand.

    `grades` has the expected grade by output; `verdict` is the verdict that must fail, or empty;
    `symptom` is part of a finding's symptom.
    """

    subject: Subject
    grades: Mapping[str, str]
    verdict: str
    symptom: str = ""

    @property
    def kind(self) -> tuple[str, frozenset[str]]:
        """What the judge is to say of it, whichever norm it is."""
        return self.verdict, frozenset(self.grades)


def layer_norm(
    kernel: Kernel, name: str, dtypes: Collection[str], also: Collection[str] = ()
) -> Subject:
    return Subject(kernel.forward, kernel.backward, name, list(dtypes), list(also))


def rms_norm(
    kernel: Kernel, name: str, dtypes: Collection[str], also: Collection[str] = ()
) -> Subject:
    """Make a subject of a kernel, without a mean and without beta."""
    kernel.centred = False

    def forward(x: Array, gamma: Array | None, eps: float) -> tuple[Array, Any]:
        return kernel.forward(x, gamma, None, eps)

    def backward(dy: Array, saved: Any) -> tuple[Array, Array | None]:
        dx, dgamma, _ = kernel.backward(dy, saved)
        return dx, dgamma

    return Subject(
        forward, backward, f"RMSNorm: {name}", list(dtypes), list(also), operation=RMS_NORM
    )


SUBJECTS = {"layer_norm": layer_norm, "rms_norm": rms_norm}


def plant(
    kernel: Kernel,
    name: str,
    *,
    of: str = "layer_norm",
    dtypes: Collection[str] = ("float32",),
    also: Collection[str] = (),
    verdict: str = "",
    **grades: str,
) -> PlantedBug:
    """Make a subject of a wrong kernel."""
    return PlantedBug(SUBJECTS[of](kernel, name, dtypes, also), grades, verdict)
