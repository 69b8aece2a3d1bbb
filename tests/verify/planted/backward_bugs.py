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


class NoMeanOfG(Kernel):
    """The term mean(g) is missing."""

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        g = gamma * slopes
        return saved.rstd * (g - xhat * self.mean_of(g * xhat))


class NoMeanOfGXhat(Kernel):
    """The term xhat*mean(g*xhat) is missing."""

    def project(
        self,
        slopes: Float64s,
        gamma: Float64s,
        xhat: Float64s,  # noqa: ARG002
        saved: Saved,
    ) -> Float64s:
        g = gamma * slopes
        return saved.rstd * (g - self.mean_of(g))


class MeanOfGTwice(Kernel):
    """The term mean(g) is subtracted twice."""

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        g = gamma * slopes
        return saved.rstd * (g - 2 * self.mean_of(g) - xhat * self.mean_of(g * xhat))


class GammaForgotten(Kernel):
    """g is dy: gamma is missing in dx."""

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        return super().project(slopes, np.ones_like(gamma), xhat, saved)


class GammaSquared(Kernel):
    """g is gamma*gamma*dy."""

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        return super().project(slopes, gamma * gamma, xhat, saved)


class GammaAfterwards(Kernel):
    """The projection of dy is multiplied by gamma, not that of gamma*dy taken."""

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        return gamma * super().project(slopes, np.ones_like(gamma), xhat, saved)


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
    plant(NoMeanOfG(), "mean(g) dropped", dx="wrong"),
    plant(NoMeanOfGXhat(), "mean(g*xhat) dropped", dx="wrong"),
    plant(MeanOfGTwice(), "mean(g) subtracted twice", dx="wrong"),
    plant(GammaForgotten(), "gamma forgotten in dx", dx="wrong"),
    plant(GammaSquared(), "gamma squared in dx", dx="wrong"),
    plant(GammaAfterwards(), "gamma applied after the projection", dx="wrong"),
]
