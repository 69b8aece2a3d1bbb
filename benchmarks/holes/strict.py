"""A strict test, which is nobody's imitation: `truenorm.verify.bound` on a few inputs.

Ordinary rows with a gamma and a beta, rows near sqrt(eps), odd widths, and a mean that is large.
"""

import ml_dtypes
import numpy as np
import pytest

import truenorm.verify as tv
from benchmarks.holes.kernels import (
    Array,
    add_rms_norm,
    layer_norm,
    rms_norm,
    rms_norm_backward,
)

SPREADS = (1.0, 1e-3)
SHAPES = ((300, 45), (4, 769))
"""Many rows for dgamma; and a row so long that its sum in 16 bits is none."""


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rms_norm(shape: tuple[int, int], spread: float, kind: type) -> None:
    """Forward and backward."""
    random = np.random.default_rng(0)
    x = (0.5 + random.normal(size=shape)).astype(kind) * kind(spread)
    dy: Array = (1 + random.normal(size=shape)).astype(kind)
    weight: Array = random.normal(size=shape[1]).astype(kind)
    for eps in (1e-5, 1e-6):
        dx, dweight = rms_norm_backward(dy, x, weight, eps)
        bound = tv.bound("rms_norm", x, weight, eps=eps, dy=dy)
        bound.assert_close(y=rms_norm(x, weight, eps), dx=dx, dgamma=dweight)


@pytest.mark.parametrize("spread", SPREADS)
def test_add_rms_norm(spread: float) -> None:
    """Both results."""
    random = np.random.default_rng(0)
    x, residual = (
        ((0.5 + random.normal(size=(8, 45))) * spread).astype(np.float32) for _ in range(2)
    )
    weight = random.normal(size=45).astype(np.float32)
    y, total = add_rms_norm(x, residual, weight, 1e-6)
    tv.bound("add_rms_norm", x, weight, eps=1e-6, residual=residual).assert_close(y=y, sum=total)


@pytest.mark.parametrize("spread", SPREADS)
def test_layer_norm(spread: float) -> None:
    """Forward."""
    random = np.random.default_rng(0)
    weight, bias = (random.normal(size=45).astype(np.float32) for _ in range(2))
    for offset in (0.5, 100.0):
        x = ((offset + random.normal(size=(8, 45))) * spread).astype(np.float32)
        bound = tv.bound("layer_norm", x, weight, bias, eps=1e-5, grade="conditional")
        bound.assert_close(y=layer_norm(x, weight, bias, 1e-5)[0])
