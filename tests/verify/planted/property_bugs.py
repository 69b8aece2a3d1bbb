"""Planted bugs that no tolerance sees: layout, batch, special values, types, damage."""

from collections.abc import Callable
from typing import Any

import numpy as np

from truenorm.verify.types import Array, Float64s
from verify.planted.base import Kernel, Results, Saved, to_24_bits
from verify.planted.entry import plant


class StrideIgnored(Kernel):
    """The elements of a row are read one after the other, whatever the last stride is."""

    def rows_of(self, array: Array) -> Float64s:
        strides = (*array.strides[:-1], array.itemsize)
        return super().rows_of(np.lib.stride_tricks.as_strided(array, array.shape, strides))


class RowsEndAt65535(Kernel):
    """y and dx of the rows beyond 65,535 are left zero."""

    def output(self, saved: Saved) -> Float64s:
        y = super().output(saved)
        y[65_535:] = 0
        return y

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        dx = super().project(slopes, gamma, xhat, saved)
        dx[65_535:] = 0
        return dx


class BlockByBatch(Kernel):
    """Squares are summed in float32 over blocks whose size changes at 256 rows."""

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        block = 8 if len(rows) < 256 else 64
        starts = range(0, rows.shape[1], block)
        partial = to_24_bits(np.add.reduceat(centred * centred, starts, axis=1))
        variance: Float64s = self.total(partial, -1)[:, np.newaxis] / rows.shape[1]
        return variance


def flushed(values: Array) -> Array:
    """Return values with zero for those below the normal range of float32."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, values.dtype.type(0), values)


class InputsFlushed(Kernel):
    """Subnormal x and dy are taken as zero."""

    def rows_of(self, array: Array) -> Float64s:
        return super().rows_of(flushed(array))


class OtherResults(Kernel):
    """Every result is something else in the end."""

    def __init__(self, of: Callable[[Array], Array]) -> None:
        self.of = of

    def cast(self, values: Float64s, like: Array) -> Array:
        return self.of(super().cast(values, like))


def without_nan(result: Array) -> Array:
    return np.nan_to_num(result, posinf=np.inf, neginf=-np.inf)


class NanSpread(Kernel):
    """A NaN in one row makes every row of y NaN."""

    def output(self, saved: Saved) -> Float64s:
        y: Float64s = super().output(saved) + 0 * self.rows_of(saved.x).sum()
        return y


class YInFloat64(Kernel):
    """y is float64 whatever x is."""

    def forward(self, x: Array, *rest: Any) -> tuple[Array, Any]:
        y, saved = super().forward(x, *rest)
        return y.astype(np.float64), saved


class RefusesOneColumn(Kernel):
    """A row of one element is an error."""

    def statistics(self, x: Array, *rest: Any) -> Saved:
        if x.shape[-1] == 1:
            raise ValueError("a row needs two elements for a variance")
        return super().statistics(x, *rest)


class DamagesX(Kernel):
    """y is written over x."""

    def forward(self, x: Array, *rest: Any) -> tuple[Array, Any]:
        y, saved = super().forward(x.copy(), *rest)
        x[...] = y
        return y, saved


class DamagesByGradient(Kernel):
    """A gradient is written over the input that it belongs to."""

    def __init__(self, place: int) -> None:
        self.place = place

    def backward(self, dy: Array, saved: Any) -> Results:
        results = super().backward(dy, saved)
        (dy, saved.gamma, saved.beta)[self.place][...] = results[self.place]
        return results


PROPERTIES = [
    plant(StrideIgnored(), "last-axis stride ignored", also=["strides"], y="wrong"),
    plant(RowsEndAt65535(), "rows beyond 65,535 skipped", y="wrong", dx="wrong"),
    plant(BlockByBatch(), "a row depending on its batch", verdict="batch-invariant"),
    plant(InputsFlushed(), "subnormal inputs flushed", verdict="subnormals kept"),
    plant(OtherResults(flushed), "subnormal outputs flushed", verdict="subnormals kept"),
    plant(OtherResults(without_nan), "NaN swallowed", verdict="special values"),
    plant(NanSpread(), "NaN spread to other rows", verdict="special values"),
    plant(
        OtherResults(np.zeros_like),
        "zeros returned",
        **dict.fromkeys(("y", "dx", "dgamma", "dbeta"), "wrong"),
    ),
    plant(YInFloat64(), "float64 returned for float32", verdict="runs"),
    plant(RefusesOneColumn(), "an error at D = 1", verdict="runs"),
    plant(DamagesX(), "in-place damage to x", verdict="inputs kept"),
    plant(DamagesByGradient(0), "in-place damage to dy", verdict="inputs kept"),
    plant(DamagesByGradient(1), "in-place damage to gamma", verdict="inputs kept"),
    plant(DamagesByGradient(2), "in-place damage to beta", verdict="inputs kept"),
]
