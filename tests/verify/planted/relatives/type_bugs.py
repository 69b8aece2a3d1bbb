"""Planted bugs of types and sums: weights and results of their own type, 16 bits on the way."""

from dataclasses import replace
from typing import Any

import numpy as np

from truenorm.verify.operations import LAYER_NORM, RMS_NORM
from truenorm.verify.types import Array, Float64s, dtype_of
from verify.planted import forward_bugs as forward
from verify.planted.base import Saved
from verify.planted.relatives.kernel import By, Changed, Relative, as_relative, plant, rounded
from verify.planted.relatives.shipped import (
    ADD_LAYER_NORM,
    ADD_RMS_NORM,
    LLAMA,
    WIDE_ZERO_CENTRED,
)

BFLOAT16 = dtype_of("bfloat16")


class WeightsReadAsBfloat16(Relative):
    """The bytes of float32 weights are taken for bfloat16 numbers."""

    def gain(self, gamma: Array | None) -> Array | None:
        if gamma is None:
            return None
        return super().gain(gamma.view(BFLOAT16)[: len(gamma)])


class WeightsCastFirst(By):
    """float32 weights are rounded to bfloat16 before they are used."""

    def gain(self, gamma: Array | None) -> Array | None:
        return super().gain(None if gamma is None else gamma.astype(BFLOAT16))


class VarianceInFloat16(Relative):
    """The mean square is stored in float16, which ends at 65504."""

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        return rounded(super().variance(rows, centred), np.float16)


class RootSavedInBfloat16(Relative):
    """Backward gets 1/sqrt(mean square + eps) in bfloat16."""

    def kept(self, saved: Saved) -> Saved:
        return replace(saved, rstd=rounded(saved.rstd, BFLOAT16))


class InverseRootInBfloat16(Relative):
    """1/sqrt(mean square + eps) is a bfloat16 number in the forward pass."""

    def output(self, saved: Saved) -> Float64s:
        return super().output(replace(saved, rstd=rounded(saved.rstd, BFLOAT16)))


class SumOfShards(Relative):
    """The mean squares of four shards are added up, and not averaged."""

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        return 4 * super().variance(rows, centred)


class EpsDividedToo(Relative):
    """eps is added to the sum of the squares, and divided by D with them."""

    def rstd(self, variance: Float64s, eps: Any) -> Float64s:
        return super().rstd(variance, eps / self.size)

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        self.size = rows.shape[1]
        return super().variance(rows, centred)


def narrow(name: str) -> Changed:
    return Changed(**{name: lambda at: at[name].astype(BFLOAT16)})


OTHER_EPS, OUTSIDE = forward.OtherEps, forward.EpsOutsideTheRoot

TYPES = [
    plant(WeightsReadAsBfloat16(), "weights read as bfloat16", WIDE_ZERO_CENTRED, y="wrong"),
    plant(
        WeightsCastFirst("late"), "weights cast to bfloat16 first", WIDE_ZERO_CENTRED, y="wrong"
    ),
    plant(
        WeightsCastFirst("early"),
        "weights cast to bfloat16 first",
        LLAMA,
        recipe="early",
        said="y is not rounded as early requires",
        y="stable",
    ),
    plant(narrow("y"), "y in bfloat16", LLAMA, verdict="runs"),
    plant(narrow("dgamma"), "dgamma in bfloat16", LLAMA, verdict="runs"),
    plant(RootSavedInBfloat16(), "rstd saved in bfloat16", ADD_LAYER_NORM, "float16"),
    plant(
        RootSavedInBfloat16(),
        "rstd saved in bfloat16",
        ADD_RMS_NORM,
        "float32",
        dx="wrong",
        dgamma="wrong",
    ),
    plant(VarianceInFloat16(), "mean squares in float16", ADD_LAYER_NORM, "float16", y="unstable"),
    plant(
        InverseRootInBfloat16(),
        "inverse root in bfloat16",
        RMS_NORM,
        recipe="late",
        said="y is not rounded as late requires",
    ),
    plant(InverseRootInBfloat16(), "bfloat16 root of float16", RMS_NORM, "float16", y="wrong"),
    plant(SumOfShards(), "mean squares of shards added up", ADD_RMS_NORM, y="wrong"),
    plant(as_relative(OTHER_EPS, lambda _: 1e-6), "eps is 1e-6", ADD_RMS_NORM, y="wrong"),
    plant(as_relative(OTHER_EPS, lambda _: 2.0**-23), "eps is float32's", LAYER_NORM, y="wrong"),
    plant(as_relative(OUTSIDE), "eps outside the root", ADD_LAYER_NORM, "float16", y="wrong"),
    plant(EpsDividedToo(), "eps divided by D", ADD_RMS_NORM, y="wrong"),
]
