"""Planted bugs of dx: what is kept for backward, and how the gradient is projected."""

from dataclasses import replace
from typing import Any

import numpy as np

from truenorm.verify.types import Array, Float64s, dtype_of
from verify.planted.base import Kernel, Results, Saved
from verify.planted.entry import plant


def rounded(values: Float64s, dtype: Any) -> Float64s:
    return values.astype(dtype).astype(np.float64)


class MeanKeptInStorage(Kernel):
    """Backward gets the mean in the type of x."""

    def kept(self, saved: Saved) -> Saved:
        mean = rounded(saved.mean, saved.x.dtype)
        return replace(saved, mean=mean, rest=np.zeros_like(mean))


class StatisticsKeptInBfloat16(Kernel):
    """Backward gets mean and rstd in bfloat16."""

    def kept(self, saved: Saved) -> Saved:
        mean, rstd = (rounded(each, dtype_of("bfloat16")) for each in (saved.mean, saved.rstd))
        return replace(saved, mean=mean, rest=np.zeros_like(mean), rstd=rstd)


class XhatFromY(Kernel):
    """Backward gets y and takes xhat as (y - beta)/gamma, which is 0/0 where gamma is 0."""

    def recalled(self, saved: Saved) -> Float64s:
        return (self.output(saved) - self.beta(saved)) / self.gamma(saved)


class StaleForward(Kernel):
    """Backward uses what the latest forward saved, whoever called that."""

    def kept(self, saved: Saved) -> Saved:
        self.latest = saved
        return saved

    def backward(self, dy: Array, saved: Any) -> Results:  # noqa: ARG002
        return super().backward(dy, self.latest)


class MeansWeighted(Kernel):
    """The terms mean(g) and xhat*mean(g*xhat) are missing, or subtracted twice."""

    def __init__(self, of_g: int, of_g_xhat: int) -> None:
        self.of_g, self.of_g_xhat = of_g, of_g_xhat

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        g = gamma * slopes
        along = xhat * self.mean_of(g * xhat)
        return saved.rstd * (g - self.of_g * self.mean_of(g) - self.of_g_xhat * along)


class GammaToPowers(Kernel):
    """g has another power of gamma in it, or dx is multiplied by one afterwards."""

    def __init__(self, before: int, after: int = 0) -> None:
        self.before, self.after = before, after

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        return gamma**self.after * super().project(slopes, gamma**self.before, xhat, saved)


class ScaledByItsLargest(Kernel):
    """g is divided by its largest element on the way, which is 0/0 in a row of padding."""

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        largest = np.abs(slopes).max(axis=-1, keepdims=True)
        dx: Float64s = largest * super().project(slopes / largest, gamma, xhat, saved)
        return dx


BACKWARD = [
    plant(
        MeanKeptInStorage(),
        "mean saved in the storage type",
        dtypes=["float16", "bfloat16"],
        dx="conditional",
        dgamma="conditional",
    ),
    plant(StatisticsKeptInBfloat16(), "statistics saved in bfloat16", dx="wrong", dgamma="wrong"),
    plant(XhatFromY(), "xhat recovered from y", dx="unstable", dgamma="unstable"),
    plant(StaleForward(), "gradients of a stale forward pass", verdict="own state"),
    plant(ScaledByItsLargest(), "dx is NaN in a row of padding", dx="wrong"),
    plant(MeansWeighted(0, 1), "mean(g) dropped", dx="wrong"),
    plant(MeansWeighted(1, 0), "mean(g*xhat) dropped", dx="wrong"),
    plant(MeansWeighted(2, 1), "mean(g) subtracted twice", dx="wrong"),
    plant(GammaToPowers(0), "gamma forgotten in dx", dx="wrong"),
    plant(GammaToPowers(2), "gamma squared in dx", dx="wrong"),
    plant(GammaToPowers(0, 1), "gamma applied after the projection", dx="wrong"),
]
