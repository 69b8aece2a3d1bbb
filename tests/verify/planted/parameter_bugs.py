"""Planted bugs of dgamma and dbeta, the sums over rows."""

from collections.abc import Callable
from typing import Any

import numpy as np

from truenorm.verify.types import Array, Float64s
from verify.planted.base import Kernel, Results, Saved, to_24_bits
from verify.planted.entry import plant


class DgammaFromX(Kernel):
    """dgamma sums dy*x."""

    def dgamma(self, slopes: Float64s, xhat: Float64s, saved: Saved) -> Float64s:  # noqa: ARG002
        return self.over_rows(slopes * self.rows_of(saved.x))


class OneAxisNotSummed(Kernel):
    """Of three axes only the first is summed over, so dgamma has two."""

    def dgamma(self, slopes: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        if saved.x.ndim == 3:
            return self.over_rows((slopes * xhat).reshape(saved.x.shape))
        return super().dgamma(slopes, xhat, saved)


class FirstOfOneAxis(Kernel):
    """Of three axes only the second is summed over, and of the first one entry taken."""

    def dgamma(self, slopes: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        rows = saved.x.shape[1] if saved.x.ndim == 3 else len(slopes)
        return self.over_rows((slopes * xhat)[:rows])


class DbetaAveraged(Kernel):
    """dbeta is the mean over the rows, not the sum."""

    def dbeta(self, slopes: Float64s) -> Float64s:
        return super().dbeta(slopes) / max(len(slopes), 1)


class PartialSumsInHalf(Kernel):
    """The running sums of dgamma and dbeta are kept in float16."""

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

    Here they come in two orders by turns, so that whoever calls twice sees it each time.
    """

    turned = False

    def dgamma(self, slopes: Float64s, xhat: Float64s, saved: Saved) -> Float64s:  # noqa: ARG002
        self.turned = not self.turned
        terms = (slopes * xhat)[:: -1 if self.turned else 1]
        total = np.zeros(terms.shape[1])
        for part in np.array_split(terms, 4):
            total = to_24_bits(total + to_24_bits(self.over_rows(part)))
        return total


class DgammaAsARow(Kernel):
    """dgamma has the shape (1, D)."""

    def backward(self, dy: Array, saved: Any) -> Results:
        dx, dgamma, dbeta = super().backward(dy, saved)
        return dx, None if dgamma is None else dgamma[np.newaxis], dbeta


class NoDbeta(Kernel):
    """dbeta is None although there is a beta."""

    def backward(self, dy: Array, saved: Any) -> Results:
        dx, dgamma, _ = super().backward(dy, saved)
        return dx, dgamma, None


PARAMETERS = [
    plant(DgammaFromX(), "dgamma from x instead of xhat", dgamma="wrong"),
    plant(
        OneAxisNotSummed(),
        "dgamma without the sum over one batch axis",
        also=["ranks"],
        verdict="runs",
    ),
    plant(FirstOfOneAxis(), "dgamma of the first batch only", also=["ranks"], dgamma="wrong"),
    plant(DbetaAveraged(), "dbeta scaled by 1/B", dbeta="wrong"),
    plant(PartialSumsInHalf(), "partial sums in float16, of float16", dtypes=["float16"]),
    plant(
        PartialSumsInHalf(), "partial sums in float16, of float32", dgamma="wrong", dbeta="wrong"
    ),
    plant(
        RowsDropped(lambda rows: rows - (6 <= rows < 264)),
        "last of some rows dropped",
        dgamma="wrong",
        dbeta="wrong",
    ),
    plant(
        RowsDropped(lambda rows: rows * 3 // 4 if rows > 1000 else rows),
        "a quarter of many rows dropped",
        dtypes=["bfloat16"],
    ),
    plant(RowsDropped(lambda _: 65_535), "sums without rows beyond 65,535"),
    plant(SumsByThread(), "dgamma depending on threads", verdict="sums repeatable"),
    plant(DgammaAsARow(), "dgamma of shape (1, D)", verdict="runs"),
    plant(NoDbeta(), "no dbeta", verdict="runs"),
]
