"""Right kernels pass, and their recipe and way are named."""

from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.operations import parse_operation
from truenorm.verify.operations.quantized.norm import QuantizedNorm
from verify.quantized.kernels import Array, F, Kernel


def at_least_1e6(groups: Array) -> Array:
    """Return the largest |y| of each group, from 1e-6 on, as TensorRT-LLM does."""
    return np.asarray(np.maximum(np.abs(groups).max(-1), F(1e-6)))


RIGHT: dict[str, tuple[dict[str, Any], str, str]] = {
    "rms_norm,quant=e4m3fn": ({}, "late/T", "divide"),
    "rms_norm,quant=e4m3fn,scale=per-token": ({}, "late/T", "divide"),
    "rms_norm,quant=int8,scale=per-token": ({"way": "reciprocal"}, "late/T", "reciprocal"),
    "rms_norm,quant=e5m2": ({"via": "direct"}, "late/direct", ""),
    "rms_norm,quant=e4m3fnuz,scale=per-token": (
        {"way": "qmax/amax", "amax": at_least_1e6},
        "late/T",
        "qmax/amax",
    ),
    "rms_norm,quant=e4m3fn,scale=per-128": ({"norm": "early"}, "early/T", ""),
    "rms_norm,quant=mxfp8": ({}, "late/T", ""),
    "rms_norm,quant=mxfp4": ({}, "late/T", ""),
    "rms_norm,quant=nvfp4": ({"norm": "product", "via": "direct"}, "product/direct", ""),
    "rms_norm,quant=e4m3fn,direction=multiply,amax=true": ({"via": "direct"}, "late/direct", ""),
    "layer_norm,quant=e4m3fn": ({"way": "reciprocal"}, "late/T", "reciprocal"),
    "add_rms_norm,sum=unrounded,quant=e4m3fn,scale=per-token": ({}, "late/T", "divide"),
}
"""By operation: how the kernel rounds, and the recipe and the way that are to be named."""


@pytest.mark.parametrize("operation", RIGHT)
def test_passes_with_its_recipe(operation: str) -> None:
    how, recipe, way = RIGHT[operation]
    norm = parse_operation(operation)
    assert isinstance(norm, QuantizedNorm)
    report = tv.verify(Kernel(norm, **how).subject())
    assert report.passed, report.findings[0].symptom
    assert [(each.name, each.way) for each in report.recipes] == [(recipe, way)]
    assert report.recipes[0].shares[recipe] == 1
