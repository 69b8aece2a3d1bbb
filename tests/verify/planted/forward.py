"""Planted bugs of the forward pass: mean, variance, eps, and how y is put together."""

from collections.abc import Callable
from typing import Any

import numpy as np

from truenorm.verify.types import Array, Float64s
from verify.planted.kernels import Altered, Kernel, Saved, WideKernel, plant, round_to


def one_pass_variance(_: Float64s, rows: Float64s, __: Float64s) -> Any:
    """E[x^2] - E[x]^2 in float32 cancels if the mean is large."""
    x = rows.astype(np.float32)
    squares, mean = (x * x).mean(-1, keepdims=True), x.mean(-1, keepdims=True)
    return np.maximum(squares - mean * mean, 0).astype(np.float64)


def sample_variance(variance: Float64s, rows: Float64s, _: Float64s) -> Any:
    size = rows.shape[1]
    return variance * (size / max(size - 1, 1))


class EpsOutsideTheRoot(Kernel):
    """Eps is added to the standard deviation."""

    def rstd(self, variance: Float64s, eps: Any) -> Float64s:
        return np.asarray(1 / (np.sqrt(variance) + eps))


class OtherEps(Kernel):
    """Eps is another number than the argument."""

    def __init__(self, taken: Callable[[float], float]) -> None:
        self.taken = taken

    def rstd(self, variance: Float64s, eps: Any) -> Float64s:
        return super().rstd(variance, self.taken(eps))


def biased_mean(_: Any, rows: Float64s) -> tuple[Any, Any]:
    mean = rows[:, :-1].sum(axis=-1, keepdims=True) / rows.shape[1]
    return mean, np.zeros_like(mean)


def mean_in_float32(pair: tuple[Float64s, Float64s], _: Float64s) -> tuple[Any, Any]:
    return round_to(pair[0], np.float32), np.zeros_like(pair[1])


def with_padding(variance: Float64s, rows: Float64s, _: Float64s) -> Any:
    """Rows are padded with zeros to lanes of 16, and the padding is centred and squared too."""
    padding = -rows.shape[1] % 16
    return variance + padding * rows.mean(axis=1, keepdims=True) ** 2 / rows.shape[1]


class LastBlockDropped(Kernel):
    """The variance of a row longer than a block misses its last, partial block."""

    def __init__(self, block: int) -> None:
        self.block = block

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        size = rows.shape[1]
        whole = size if size < self.block else size - size % self.block
        variance: Float64s = self.mean_of(centred[:, :whole] ** 2) * (whole / size)
        return variance


def squares_in_float32(_: Float64s, __: Float64s, centred: Float64s) -> Any:
    c = centred.astype(np.float32)
    return (c * c).mean(-1, keepdims=True).astype(np.float64)


def negative_if_constant(variance: Float64s, rows: Float64s, _: Float64s) -> Any:
    """Return a variance just below zero for a constant row, so that its root is NaN."""
    mean = rows.mean(axis=1, keepdims=True)
    constant = (np.ptp(rows, axis=1, keepdims=True) == 0) & (np.abs(mean) > 100)
    return np.where(constant, -(2.0**-24) * mean**2, variance)


class FoldedAffine(Kernel):
    """y is x*scale + bias in float32: two large numbers that cancel."""

    def output(self, saved: Saved) -> Float64s:
        gamma, beta = self.gamma(saved), self.beta(saved)
        scale = (gamma * saved.rstd).astype(np.float32)
        bias = (beta - (saved.mean + saved.rest) * scale).astype(np.float32)
        return (self.rows_of(saved.x).astype(np.float32) * scale + bias).astype(np.float64)


class WrongDefaults(Kernel):
    """Where gamma is None, 0 stands for it, as if it were centred at zero; for beta, 1."""

    def gamma(self, saved: Saved) -> Float64s:
        return np.zeros(saved.x.shape[-1]) if saved.gamma is None else super().gamma(saved)

    def beta(self, saved: Saved) -> Float64s:
        return np.ones(saved.x.shape[-1]) if saved.beta is None else super().beta(saved)


class ComputedInFloat32(WideKernel):
    """Float64 input is rounded to float32 on the way in."""

    def rows_of(self, array: Array) -> Float64s:
        return super().rows_of(array.astype(np.float32))


class OtherOutput(Kernel):
    """What is returned is made of the right y and of beta."""

    def __init__(self, of: Callable[[Float64s, Float64s], Float64s]) -> None:
        self.of = of

    def output(self, saved: Saved) -> Float64s:
        return self.of(super().output(saved), self.beta(saved))


def beta_at_hidden_sizes(y: Float64s, beta: Float64s) -> Float64s:
    return y if y.shape[-1] % 128 else 0 * y + beta


def beta_where_large(y: Float64s, beta: Float64s) -> Float64s:
    """Return beta where it is beyond 100, as if the rest were a rounding error of it."""
    return np.where(np.abs(beta) > 100, beta, y)


def no_beta_between(above: int, below: float = float("inf")) -> OtherOutput:
    """Rows of more than so many elements, and of fewer than so many others, lose their beta."""
    return OtherOutput(lambda y, beta: y - beta if above < y.shape[-1] < below else y)


def clipped(values: Float64s, *_: Any) -> Any:
    """Clip to the range of float16, as a kernel does that was written for it."""
    return np.clip(values, -65504, 65504)


def all_like_first(neutral: float) -> Callable[[Float64s, Saved], Any]:
    """Return a step that takes a parameter for neutral if its first element is."""
    return lambda values, _: np.where(values[0] == neutral, neutral, values)


FORWARD = [
    plant(Altered(variance=one_pass_variance), "one-pass variance", y="unstable"),
    plant(Altered(variance=sample_variance), "variance divided by D-1", y="wrong"),
    plant(EpsOutsideTheRoot(), "eps added outside the root", y="wrong"),
    plant(OtherEps(lambda eps: float(np.float16(eps))), "eps cast to half"),
    plant(OtherEps(lambda _: 1e-5), "a constant eps"),
    plant(Altered(mean=biased_mean), "biased mean by one element", y="wrong"),
    plant(Altered(mean=mean_in_float32), "float32 mean only", y="conditional"),
    plant(Altered(variance=with_padding), "padding lanes counted in the variance", y="wrong"),
    plant(LastBlockDropped(64), "last partial block of 64 dropped", y="wrong"),
    plant(LastBlockDropped(1024), "last partial block of 1024 dropped", y="wrong"),
    plant(Altered(variance=squares_in_float32), "overflow of squares", y="unstable"),
    plant(
        Altered(variance=negative_if_constant), "negative variance of a constant row", y="unstable"
    ),
    plant(FoldedAffine(), "folded scale and bias", y="conditional"),
    plant(WrongDefaults(), "wrong without gamma", also=["no-gamma"], y="wrong"),
    plant(WrongDefaults(), "wrong without beta", also=["no-beta"], y="wrong"),
    plant(OtherOutput(lambda y, _: 1.02 * y), "two percent too large", dtypes=["bfloat16"]),
    plant(OtherOutput(beta_at_hidden_sizes), "wrong at multiples of 128", y="wrong"),
    plant(OtherOutput(beta_where_large), "y is beta where that is large", y="wrong"),
    plant(
        OtherOutput(beta_where_large),
        "y is beta where that is large, in 16 bits",
        dtypes=["float16", "bfloat16"],
        y="wrong",
    ),
    plant(no_beta_between(11, 13), "wrong at D = 12", y="wrong"),
    plant(no_beta_between(95, 97), "wrong at D = 96", y="wrong"),
    plant(no_beta_between(2048, 4096), "wrong between 2048 and 4096", y="wrong"),
    plant(no_beta_between(5000, 8192), "wrong between 5000 and 8192", y="wrong"),
    plant(no_beta_between(8192), "wrong above 8192", y="wrong"),
    plant(no_beta_between(7167, 7169), "wrong at D = 7168", y="wrong"),
    plant(no_beta_between(2047, 3072), "wrong from 2048 to 3071", y="wrong"),
    plant(no_beta_between(1025, 2048), "wrong between 1025 and 2048", y="wrong"),
    plant(no_beta_between(16384), "wrong above 16384", y="wrong"),
    plant(Altered(output=clipped), "y clipped at 65504", y="unstable"),
    plant(Altered(gamma=clipped), "gamma clipped at 65504", y="unstable", dx="unstable"),
    plant(Altered(gamma=all_like_first(1)), "gamma taken for ones by its first", y="wrong"),
    plant(Altered(beta=all_like_first(0)), "beta taken for zeros by its first", y="wrong"),
    plant(ComputedInFloat32(), "float64 computed in float32", dtypes=["float64"], y="wrong"),
]
