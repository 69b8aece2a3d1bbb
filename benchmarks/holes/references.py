"""What the imitations compare with, in float64; and how close is close."""

from typing import Any

import numpy as np

from benchmarks.holes.kernels import Array

__all__ = ["close", "layer_norm_of", "rms_norm_gradients", "rms_norm_of"]


def close(actual: Array, expected: Array, atol: float, rtol: float) -> None:
    """Raise unless |actual - expected| is at most atol + rtol*|expected| everywhere."""
    got, right = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(got, right, atol=atol, rtol=rtol)


def rms_norm_of(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    """Return y in float64."""
    rows = x.astype(np.float64)
    y: Array = rows / np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + eps)
    return y * weight.astype(np.float64)


def rms_norm_gradients(dy: Array, x: Array, weight: Array, eps: float = 1e-6) -> Any:
    """Return dx and dweight in float64."""
    rows, slopes = x.astype(np.float64), dy.astype(np.float64)
    r = 1 / np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + eps)
    xhat, g = rows * r, slopes * weight.astype(np.float64)
    dx = r * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True))
    return dx, (slopes * xhat).reshape(-1, x.shape[-1]).sum(axis=0)


def layer_norm_of(x: Array, weight: Array, bias: Array, mean: Array, rstd: Array) -> Array:
    """Return y in float64, from statistics that are given."""
    xhat = (x.astype(np.float64) - mean[..., np.newaxis]) * rstd[..., np.newaxis]
    y: Array = xhat * weight.astype(np.float64) + bias.astype(np.float64)
    return y
