"""Planted bugs of layout, batch and repetition, in norms as kernels ship them."""

from typing import Any

import numpy as np

from truenorm.verify.operations import RMS_NORM
from truenorm.verify.types import Array, Float64s
from verify.planted.base import Saved
from verify.planted.property_bugs import BlockByBatch, StrideIgnored
from verify.planted.relatives.kernel import Relative, as_relative, plant
from verify.planted.relatives.shipped import ADD_LAYER_NORM, ADD_RMS_NORM


def one_after_the_other(array: Array) -> Array:
    """Return what is read if rows are taken to follow each other without a gap."""
    size = array.itemsize
    strides = np.cumprod([size, *array.shape[:0:-1]])[::-1]
    return np.lib.stride_tricks.as_strided(array, array.shape, tuple(map(int, strides)))


class PaddingIgnored(Relative):
    """x is read as if its rows followed each other without a gap."""

    def added(self, x: Array, residual: Array) -> tuple[Array, Array]:
        return super().added(one_after_the_other(x), residual)


class GradientsWithoutGaps(Relative):
    """Gradients are read as if they were contiguous, whatever x is; or what arrives at the sum."""

    def __init__(self, *, dsum_only: bool) -> None:
        self.dsum_only = dsum_only

    def passed_backward(self, dy: Array, *others: Any) -> tuple[Any, ...]:
        *arriving, kept = others
        dy = dy if self.dsum_only else one_after_the_other(dy)
        return super().passed_backward(dy, *map(one_after_the_other, arriving), kept)


class LanesByBatch(Relative):
    """Squares are added up in float32 by so many lanes as the number of rows says."""

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        lanes = min(8 if len(rows) < 256 else 64, rows.shape[1])
        squares = (centred * centred).astype(np.float32)
        each = [one_by_one(squares[:, lane::lanes]) for lane in range(lanes)]
        mean: Float64s = one_by_one(np.concatenate(each, axis=1)) / np.float64(rows.shape[1])
        return mean


def one_by_one(terms: Array) -> Array:
    """Return sums in the type of their terms, from the first to the last, as a column."""
    sums: Array = np.add.accumulate(terms, axis=1)[:, -1:]
    return sums


class TwoAtATime(Relative):
    """Two elements are written at a time, from the last row to the first, also of an odd width."""

    def output(self, saved: Saved) -> Float64s:
        y = super().output(saved)
        if y.shape[-1] % 2:
            y[1:, 0] = y[:-1, -1]
        return y


class NotInitialized(Relative):
    """The last column of the last row holds what was there before: another number each time."""

    calls = 0

    def output(self, saved: Saved) -> Float64s:
        y = super().output(saved)
        self.calls += 1
        y[-1:, -1] = self.calls % 7
        return y


class PartialSumsNotWritten(Relative):
    """dgamma adds up two partial sums, of which one row writes one."""

    def dgamma(self, slopes: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        not_written = 1e20 if len(slopes) == 1 else 0.0
        return super().dgamma(slopes, xhat, saved) + not_written


LAYOUTS = [
    plant(
        PaddingIgnored(),
        "rows of x without their gaps",
        ADD_RMS_NORM,
        also=["padded-rows"],
        y="wrong",
    ),
    plant(
        GradientsWithoutGaps(dsum_only=True),
        "rows of dsum without their gaps",
        ADD_RMS_NORM,
        also=["padded-rows"],
        dx="wrong",
        dresidual="wrong",
    ),
    plant(
        GradientsWithoutGaps(dsum_only=False),
        "strided gradients read as contiguous",
        RMS_NORM,
        also=["strides"],
        dx="wrong",
        dgamma="wrong",
    ),
    plant(
        as_relative(StrideIgnored),
        "last-axis stride ignored",
        ADD_LAYER_NORM,
        "float16",
        also=["strides"],
        dx="wrong",
    ),
    plant(TwoAtATime(), "the start of rows of odd width", ADD_RMS_NORM, y="wrong"),
    plant(
        as_relative(BlockByBatch),
        "blocks that switch at 256 rows",
        ADD_RMS_NORM,
        "float32",
        verdict="batch-invariant",
    ),
    plant(LanesByBatch(), "lanes that switch at 256 rows", RMS_NORM, verdict="batch-invariant"),
    plant(
        LanesByBatch(),
        "lanes that switch at 256 rows",
        ADD_LAYER_NORM,
        "float16",
        verdict="batch-invariant",
    ),
    plant(NotInitialized(), "garbage of each run", ADD_RMS_NORM, y="wrong", verdict="repeatable"),
    plant(PartialSumsNotWritten(), "dgamma of one row", ADD_RMS_NORM, dgamma="unstable"),
]
