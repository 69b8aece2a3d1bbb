"""Planted bugs of the forward pass: mean, variance, eps, and how y is put together."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from shared.verify.planted.kernels import (
    BFLOAT16,
    Altered,
    Kernel,
    Saved,
    WideKernel,
    plant,
    round_to,
    to_bits,
)
from truenorm.verify.types import Array, Float64s


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


class ClampedInput(Kernel):
    """The finite elements of x are clamped, as a guard against overflow."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def statistics(self, x: Array, *rest: Any) -> Saved:
        wide = x.astype(np.float64)
        clamped = np.where(np.isfinite(wide), wide.clip(-self.limit, self.limit), wide)
        return super().statistics(clamped.astype(x.dtype), *rest)


def squares_in_half(_: Float64s, __: Float64s, centred: Float64s) -> Any:
    c = centred.astype(np.float16)
    return (c * c).astype(np.float64).mean(-1, keepdims=True)


def sum_of_squares_in_half(_: Float64s, __: Float64s, centred: Float64s) -> Any:
    total = (centred * centred).sum(-1, keepdims=True).astype(np.float16)
    return total.astype(np.float64) / centred.shape[-1]


def saturated_squares(_: Float64s, __: Float64s, centred: Float64s) -> Any:
    """Return the variance by squares that a saturating cast keeps in the range of float16."""
    return clipped(centred * centred).mean(-1, keepdims=True)


def all_like_first(neutral: float) -> Callable[[Float64s, Saved], Any]:
    """Return a step that takes a parameter for neutral if its first element is."""
    return lambda values, _: np.where(values[0] == neutral, neutral, values)


class LimitedByEps(Kernel):
    """A multiple of eps is a lower limit of the variance, and is not added."""

    def __init__(self, times: float) -> None:
        self.times = times

    def rstd(self, variance: Float64s, eps: Any) -> Float64s:
        return np.asarray(1 / np.sqrt(np.maximum(variance, self.times * eps)))


class FastRoot(Kernel):
    """1/sqrt by the bits of a float32 and one Newton step, whose constant may be wrong."""

    def __init__(self, constant: float) -> None:
        self.constant = constant

    def rstd(self, variance: Float64s, eps: Any) -> Float64s:
        w = (variance + eps).astype(np.float32)
        guess = (np.int32(0x5F3759DF) - (w.view(np.int32) >> 1)).view(np.float32)
        r: Float64s = guess.astype(np.float64)
        return np.asarray(r * (self.constant - 0.5 * w * r * r))


class CachedStatistics(Kernel):
    """The statistics of the first call with a shape are used again, the mean by a factor."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.cache: dict[Any, Saved] = {}

    def statistics(self, x: Array, gamma: Array | None, beta: Array | None, eps: float) -> Saved:
        first = x.shape not in self.cache
        saved = self.cache.setdefault(x.shape, super().statistics(x, gamma, beta, eps))
        factor = 1.0 if first else self.factor
        return Saved(x, gamma, beta, factor * saved.mean, factor * saved.rest, saved.rstd)


class CachedByAddress(Kernel):
    """Statistics are found again by the address of x, its shape and its type."""

    def __init__(self) -> None:
        self.cache: dict[Any, Saved] = {}

    def statistics(self, x: Array, gamma: Array | None, beta: Array | None, eps: float) -> Saved:
        key = x.ctypes.data, x.shape, x.dtype
        saved = self.cache.setdefault(key, super().statistics(x, gamma, beta, eps))
        return replace(saved, x=x, gamma=gamma, beta=beta)


class MovedGamma(Kernel):
    """A column has the gamma of another one."""

    def __init__(self, columns: int) -> None:
        self.columns = columns

    def gamma(self, saved: Saved) -> Float64s:
        return np.roll(super().gamma(saved), -self.columns)


def with_tail(fill: Callable[[Float64s], Any]) -> OtherOutput:
    """Columns beyond the last whole vector of 8 are filled, where there is a whole one."""

    def output(y: Float64s, _: Float64s) -> Float64s:
        size = y.shape[1]
        start = size - size % 8 if size > 8 else size
        y[:, start:] = fill(y[:, start:])
        return y

    return OtherOutput(output)


def scattered_zeros(y: Float64s, _: Float64s) -> Float64s:
    """Return y with zeros at one column in thirteen, by no simple rule."""
    columns = np.arange(y.shape[1])
    return np.where(columns * columns * 7 % 13 == 2, 0.0, y)


def merged_as_equals(block: int) -> Altered:
    """Blocks of a row are merged as if the last had as many columns as the others."""

    def mean(_: Any, rows: Float64s) -> tuple[Float64s, Float64s]:
        starts = range(0, rows.shape[1], block)
        means = [rows[:, start : start + block].mean(axis=1) for start in starts]
        merged = np.mean(means, axis=0)[:, np.newaxis]
        return merged, np.zeros_like(merged)

    return Altered(mean=mean)


def squares_of(bits: int) -> Altered:
    """Deviations are rounded to so many bits before they are squared."""
    return Altered(variance=lambda _, __, c: (to_bits(c, bits) ** 2).mean(-1, keepdims=True))


def divided_by(size: int) -> Altered:
    """Divide the sum of squares by a constant."""
    return Altered(variance=lambda variance, rows, _: variance * (rows.shape[1] / size))


def growing_with_kappa(variance: Float64s, rows: Float64s, _: Float64s) -> Any:
    """Return a variance whose error grows like kappa, not like its square."""
    return variance + 2.0**-21 * np.sqrt(variance * (rows**2).mean(axis=1, keepdims=True))


def of_columns(step: Any, rows: Float64s, *_: Any) -> Any:
    """Return the mean, as a pair, or the variance over axis 0."""
    if isinstance(step, tuple):
        return rows.mean(axis=0, keepdims=True), np.zeros((1, rows.shape[1]))
    return ((rows - rows.mean(axis=0, keepdims=True)) ** 2).mean(axis=0, keepdims=True)


def mean_in_sequence(_: Any, rows: Float64s) -> tuple[Float64s, Float64s]:
    total = np.add.accumulate(rows.astype(BFLOAT16), axis=1)[:, -1:].astype(np.float64)
    return total / rows.shape[1], np.zeros((len(rows), 1))


class SkipsUnaligned(Kernel):
    """Columns before the first address divisible by 16 are left out of the variance."""

    def statistics(self, x: Array, gamma: Array | None, beta: Array | None, eps: float) -> Saved:
        self.start = -x.ctypes.data % 16 // x.itemsize
        return super().statistics(x, gamma, beta, eps)

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        counted = centred * (np.arange(rows.shape[1]) >= self.start)
        return super().variance(rows, counted)


def squares_in_sequence(_: Any, rows: Float64s, centred: Float64s) -> Float64s:
    squares = np.add.accumulate((centred * centred).astype(np.float32), axis=1)
    return np.asarray(squares[:, -1:].astype(np.float64) / rows.shape[1])


FORWARD = [
    plant(SkipsUnaligned(), "unaligned columns left out", y="wrong"),
    plant(Altered(variance=squares_in_sequence), "squares added one by one", y="unstable"),
    plant(LimitedByEps(1), "eps as a lower limit", y="wrong"),
    plant(LimitedByEps(2), "twice eps as a lower limit", y="wrong"),
    plant(FastRoot(1.5), "a fast root with one Newton step", y="wrong"),
    plant(FastRoot(1.49), "a fast root with a wrong Newton step", y="wrong"),
    plant(CachedStatistics(1), "statistics of an earlier call", y="wrong"),
    plant(CachedByAddress(), "statistics of an address", y="wrong"),
    plant(CachedStatistics(2), "twice the mean of an earlier call", y="wrong"),
    plant(MovedGamma(1), "gamma of the next column", y="wrong"),
    plant(MovedGamma(2), "gamma of the next column but one", y="wrong"),
    plant(with_tail(lambda _: 0.0), "a tail of 8 not written", y="wrong"),
    plant(with_tail(lambda y: y + 3.0), "a tail of 8 off by 3", y="wrong"),
    plant(OtherOutput(scattered_zeros), "scattered columns not written", y="wrong"),
    plant(merged_as_equals(64), "blocks of 64 merged as equals", y="wrong"),
    plant(merged_as_equals(48), "blocks of 48 merged as equals", y="wrong"),
    plant(squares_of(11), "squares of TF32 numbers", y="wrong"),
    plant(squares_of(13), "squares of 13 bits", y="wrong"),
    plant(divided_by(768), "D taken for 768", y="wrong"),
    plant(divided_by(770), "D taken for 770", y="wrong"),
    plant(Altered(variance=growing_with_kappa), "variance off like kappa", y="conditional"),
    plant(Altered(mean=of_columns, variance=of_columns), "statistics of columns", y="wrong"),
    plant(Altered(mean=mean_in_sequence), "mean added in bfloat16", dtypes=["bfloat16"]),
    plant(OtherOutput(lambda y, _: y.clip(-2, 2)), "y limited to 2", y="wrong"),
    plant(OtherOutput(lambda y, _: 2 * np.tanh(y / 2)), "y limited smoothly", y="wrong"),
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
    plant(Altered(variance=negative_if_constant), "negative variance of a constant row",
        y="unstable"),
    plant(FoldedAffine(), "folded scale and bias", y="conditional"),
    plant(WrongDefaults(), "wrong without gamma", also=["no-gamma"], y="wrong"),
    plant(WrongDefaults(), "wrong without beta", also=["no-beta"], y="wrong"),
    plant(OtherOutput(lambda y, _: 1.02 * y), "two percent too large", dtypes=["bfloat16"]),
    plant(OtherOutput(beta_at_hidden_sizes), "wrong at multiples of 128", y="wrong"),
    plant(OtherOutput(beta_where_large), "y is beta where that is large", y="wrong"),
    plant(OtherOutput(beta_where_large), "y is beta where that is large, in 16 bits",
        dtypes=["float16", "bfloat16"], y="wrong"),
    plant(no_beta_between(11, 13), "wrong at D = 12", y="wrong"),
    plant(no_beta_between(95, 97), "wrong at D = 96", y="wrong"),
    plant(no_beta_between(2048, 4096), "wrong between 2048 and 4096", y="wrong"),
    plant(no_beta_between(5000, 8192), "wrong between 5000 and 8192", y="wrong"),
    plant(no_beta_between(8192), "wrong above 8192", y="wrong"),
    plant(no_beta_between(7167, 7169), "wrong at D = 7168", y="wrong"),
    plant(no_beta_between(2047, 3072), "wrong from 2048 to 3071", y="wrong"),
    plant(no_beta_between(1025, 2048), "wrong between 1025 and 2048", y="wrong"),
    plant(no_beta_between(16384), "wrong above 16384", y="wrong"),
    plant(ClampedInput(1000), "x clamped to 1000", y="wrong"),
    plant(ClampedInput(4000), "x clamped to 4000", y="wrong"),
    plant(ClampedInput(300), "x clamped to 300", dtypes=["bfloat16"], y="wrong"),
    plant(Altered(xhat=lambda xhat, _: xhat.clip(-5, 5)), "xhat clamped to 5", y="wrong"),
    plant(Altered(variance=squares_in_half), "squares in float16", y="wrong"),
    plant(Altered(variance=sum_of_squares_in_half), "sum of squares in float16",
        dtypes=["float16"], y="wrong"),
    plant(Altered(output=clipped), "y clipped at 65504", y="unstable"),
    plant(Altered(gamma=clipped), "gamma clipped at 65504", y="unstable", dx="unstable"),
    plant(Altered(gamma=all_like_first(1)), "gamma taken for ones by its first", y="wrong"),
    plant(Altered(beta=all_like_first(0)), "beta taken for zeros by its first", y="wrong"),
    plant(ComputedInFloat32(), "float64 computed in float32", dtypes=["float64"], y="wrong"),
]  # fmt: skip
