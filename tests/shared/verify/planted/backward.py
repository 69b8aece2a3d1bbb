"""Planted bugs of the backward pass: saved statistics, dx, dgamma and dbeta."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from shared.verify.planted.kernels import (
    BFLOAT16,
    Altered,
    Kernel,
    Results,
    Saved,
    plant,
    round_to,
    to_24_bits,
)
from truenorm.verify.types import Array, Float64s


def with_mean_in(saved: Saved, dtype: Any) -> Saved:
    mean = round_to(saved.mean, dtype)
    return replace(saved, mean=mean, rest=np.zeros_like(mean))


def statistics_in_bfloat16(saved: Saved, _: Saved) -> Saved:
    return replace(with_mean_in(saved, BFLOAT16), rstd=round_to(saved.rstd, BFLOAT16))


class XhatFromY(Kernel):
    """Backward gets y and takes xhat as (y - beta)/gamma, which is 0/0 where gamma is 0."""

    def xhat_of_saved(self, saved: Saved) -> Float64s:
        return (self.output(saved) - self.beta(saved)) / self.gamma(saved)


class StaleForward(Kernel):
    """Backward uses what the latest forward saved, of any caller."""

    def to_save(self, saved: Saved) -> Saved:
        self.latest = saved
        return saved

    def backward(self, dy: Array, saved: Any) -> Results:  # noqa: ARG002
        return super().backward(dy, self.latest)


class MeansWeighted(Kernel):
    """The terms mean(g) and xhat*mean(g*xhat) are missing, or subtracted twice."""

    def __init__(self, of_g: int, of_g_xhat: int) -> None:
        self.of_g, self.of_g_xhat = of_g, of_g_xhat

    def project(self, dy: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        g = gamma * dy
        along = xhat * self.mean_of(g * xhat)
        return saved.rstd * (g - self.of_g * self.mean_of(g) - self.of_g_xhat * along)


class GammaToPowers(Kernel):
    """g has another power of gamma in it, or dx is multiplied by one afterwards."""

    def __init__(self, before: int, after: int = 0) -> None:
        self.before, self.after = before, after

    def project(self, dy: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        return gamma**self.after * super().project(dy, gamma**self.before, xhat, saved)


class ScaledByItsLargest(Kernel):
    """g is divided by its largest element on the way, which is 0/0 in a row of padding."""

    def project(self, dy: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        largest = np.abs(dy).max(axis=-1, keepdims=True)
        dx: Float64s = largest * super().project(dy / largest, gamma, xhat, saved)
        return dx


def over_the_axis_of_its_length(_: Any, dy: Float64s) -> Float64s:
    return np.asarray(dy.sum(axis=1 - dy.shape.index(dy.shape[1])))


BACKWARD = [
    plant(Altered(dbeta=over_the_axis_of_its_length), "dbeta over the wrong axis of a square",
        dbeta="wrong"),
    plant(Altered(to_save=lambda saved, _: with_mean_in(saved, saved.x.dtype)),
        "mean saved in the storage type", dtypes=["float16", "bfloat16"], dx="conditional",
        dgamma="conditional"),
    plant(Altered(to_save=statistics_in_bfloat16), "statistics saved in bfloat16", dx="wrong",
        dgamma="wrong"),
    plant(XhatFromY(), "xhat recovered from y", dx="unstable", dgamma="unstable"),
    plant(StaleForward(), "gradients of a stale forward pass", verdict="own state"),
    plant(ScaledByItsLargest(), "dx is NaN in a row of padding", dx="wrong"),
    plant(MeansWeighted(0, 1), "mean(g) dropped", dx="wrong"),
    plant(MeansWeighted(1, 0), "mean(g*xhat) dropped", dx="wrong"),
    plant(MeansWeighted(2, 1), "mean(g) subtracted twice", dx="wrong"),
    plant(GammaToPowers(0), "gamma forgotten in dx", dx="wrong"),
    plant(GammaToPowers(2), "gamma squared in dx", dx="wrong"),
    plant(GammaToPowers(0, 1), "gamma applied after the projection", dx="wrong"),
]  # fmt: skip


class OneAxisNotSummed(Kernel):
    """Of three axes only the first is summed over, so dgamma has two."""

    def dgamma(self, dy: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        if saved.x.ndim == 3:
            return self.over_rows((dy * xhat).reshape(saved.x.shape))
        return super().dgamma(dy, xhat, saved)


class FirstOfOneAxis(Kernel):
    """Of three axes only the second is summed over, and of the first one entry taken."""

    def dgamma(self, dy: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        rows = saved.x.shape[1] if saved.x.ndim == 3 else len(dy)
        return self.over_rows((dy * xhat)[:rows])


class PartialSumsInHalf(Kernel):
    """The running sums of dgamma and dbeta are float16 numbers."""

    def over_rows(self, terms: Float64s) -> Float64s:
        total = np.zeros(terms.shape[1], np.float16)
        for row in terms:
            total = (total + row).astype(np.float16)
        return total.astype(np.float64)


class RowsDropped(Kernel):
    """dgamma and dbeta leave out the last rows, of some numbers of rows."""

    def __init__(self, taken: Callable[[int], int]) -> None:
        self.taken = taken

    def over_rows(self, terms: Float64s) -> Float64s:
        return super().over_rows(terms[: self.taken(len(terms))])


class SumsByThread(Kernel):
    """Four threads take rows as they come, and add their float32 sums as they finish.

    Here they come in two orders by turns, so that two calls always show it.
    """

    turned = False

    def dgamma(self, dy: Float64s, xhat: Float64s, saved: Saved) -> Float64s:  # noqa: ARG002
        self.turned = not self.turned
        terms = (dy * xhat)[:: -1 if self.turned else 1]
        total = np.zeros(terms.shape[1])
        for part in np.array_split(terms, 4):
            total = to_24_bits(total + to_24_bits(self.over_rows(part)))
        return total


PARAMETERS = [
    plant(Altered(dgamma=lambda _, dy, __, saved: (dy * saved.x).sum(axis=0)),
        "dgamma from x instead of xhat", dgamma="wrong"),
    plant(OneAxisNotSummed(), "dgamma without the sum over one batch axis", also=["ranks"],
        verdict="runs"),
    plant(FirstOfOneAxis(), "dgamma of the first batch only", also=["ranks"], dgamma="wrong"),
    plant(Altered(dbeta=lambda dbeta, dy: dbeta / max(len(dy), 1)), "dbeta scaled by 1/B",
        dbeta="wrong"),
    plant(Altered(dbeta=lambda _, dy: dy.astype(np.float16).astype(np.float64).sum(axis=0)),
        "dbeta of dy in float16", dbeta="wrong"),
    plant(PartialSumsInHalf(), "partial sums in float16, of float16", dtypes=["float16"]),
    plant(PartialSumsInHalf(), "partial sums in float16, of float32", dgamma="wrong",
        dbeta="wrong"),
    plant(RowsDropped(lambda rows: rows - (6 <= rows < 264)), "last of some rows dropped",
        dgamma="wrong", dbeta="wrong"),
    plant(RowsDropped(lambda rows: rows * 3 // 4 if rows > 1000 else rows),
        "a quarter of many rows dropped", dtypes=["bfloat16"]),
    plant(RowsDropped(lambda _: 65_535), "sums without rows beyond 65,535"),
    plant(RowsDropped(lambda rows: min(rows, 64)), "sums of the first 64 rows"),
    plant(RowsDropped(lambda rows: min(rows, 70)), "sums of the first 70 rows"),
    plant(SumsByThread(), "dgamma depending on threads", verdict="sums repeatable"),
    plant(Altered(backward=lambda results, *_: (results[0], results[1][np.newaxis], results[2])),
        "dgamma of shape (1, D)", verdict="runs"),
    plant(Altered(backward=lambda results, *_: (*results[:2], None)), "no dbeta", verdict="runs"),
]  # fmt: skip
