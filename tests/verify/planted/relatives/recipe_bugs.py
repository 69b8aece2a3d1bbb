"""Planted bugs of rounding: another recipe than is claimed, or another norm than is said."""

from typing import Any

import numpy as np

from truenorm.verify.operations import LAYER_NORM, RMS_NORM
from truenorm.verify.operations.norms import Norm
from truenorm.verify.types import Array, Float64s
from verify.planted.base import to_24_bits
from verify.planted.entry import PlantedBug
from verify.planted.relatives.kernel import By, Relative, plant
from verify.planted.relatives.shipped import (
    ADD_LAYER_NORM,
    ADD_RMS_NORM,
    OF_THE_UNROUNDED,
    WIDE_ZERO_CENTRED,
    ZERO_CENTRED,
)


class CutOff(Relative):
    """float32 becomes bfloat16 by leaving out the last 16 bits: y, or the sum before the norm."""

    def __init__(self, *, sums: bool) -> None:
        self.sums = sums

    def cast(self, values: Float64s, like: Array) -> Array:
        if self.sums or like.dtype != self.kinds["x"]:
            return super().cast(values, like)
        return cut(values).astype(like.dtype)

    def added(self, x: Array, residual: Array) -> tuple[Array, Array]:
        if not self.sums:
            return super().added(x, residual)
        total = cut(x.astype(np.float64) + residual.astype(np.float64)).astype(x.dtype)
        return total, total


def cut(values: Float64s) -> Array:
    """Return float32 numbers whose last 16 bits are zero."""
    bits = to_24_bits(values).astype(np.float32).view(np.uint32)
    left: Array = (bits & np.uint32(0xFFFF0000)).view(np.float32)
    return left


class OtherSum(Relative):
    """The sum that the operation does not say is normalized: the unrounded one, or the rounded."""

    def added(self, x: Array, residual: Array) -> tuple[Array, Array]:
        total = x + residual
        if self.operation.sum == "unrounded":
            return total, total
        return x.astype(np.float64) + residual.astype(np.float64), total


class OtherNorm(Relative):
    """The mean is subtracted where it should not be, or is not where it should."""

    def passed_forward(self, *given: Any) -> Any:
        self.centred = not self.operation.centred
        return super().passed_forward(*given)


def claimed(
    claim: str,
    kernel: Relative,
    name: str,
    operation: Norm,
    dtype: str = "bfloat16",
    *,
    bits: str = "",
    y: str = "stable",
) -> PlantedBug:
    """Return a bug whose y is near enough, and has other bits than it claims."""
    said = f"y is not rounded as {claim} requires: bits" + (f" of {bits} in 100" if bits else "")
    title = f"{name}, where {claim} is claimed"
    return plant(kernel, title, operation, dtype, recipe=claim, said=said, y=y)


def by(
    recipe: str, claim: str, operation: Norm, dtype: str = "bfloat16", y: str = "stable"
) -> PlantedBug:
    return claimed(claim, By(recipe), recipe, operation, dtype, bits=recipe, y=y)


RECIPES = [
    by("early", "late", RMS_NORM),
    by("late", "early", RMS_NORM, "float16", y="faithful"),
    by("early", "late", ADD_RMS_NORM),
    by("late", "early", ADD_RMS_NORM, y="faithful"),
    by("product", "late", LAYER_NORM, "float16"),
    by("apex", "late", LAYER_NORM),
    by("late", "apex", ADD_LAYER_NORM, "float16", y="faithful"),
    by("early", "weight-typed", WIDE_ZERO_CENTRED),
    by("gain-rounded", "late", ZERO_CENTRED),
    by("late", "gain-rounded", ZERO_CENTRED, y="faithful"),
    by("late", "none", RMS_NORM, y="faithful"),
    claimed(
        "late", OtherSum(), "of the unrounded sum", ADD_RMS_NORM, bits="late, of the unrounded sum"
    ),
    claimed(
        "late", OtherSum(), "of the rounded sum", OF_THE_UNROUNDED, bits="late, of the rounded sum"
    ),
    claimed("late", CutOff(sums=False), "y cut off", RMS_NORM, y="faithful"),
    claimed("late", CutOff(sums=True), "the sum cut off", ADD_RMS_NORM),
]

OTHER_NORMS = [
    plant(OtherNorm(), "layer norm handed in", ADD_RMS_NORM, y="wrong"),
    plant(OtherNorm(), "layer norm handed in", WIDE_ZERO_CENTRED, y="wrong"),
    plant(OtherNorm(), "RMSNorm handed in", LAYER_NORM, y="wrong"),
    plant(OtherNorm(), "RMSNorm handed in", ADD_LAYER_NORM, "float16", y="wrong"),
]
