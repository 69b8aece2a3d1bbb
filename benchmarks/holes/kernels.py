"""Right kernels, in float32 and rounded once, for the imitations to test."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    """Return y."""
    rows = x.astype(np.float32)
    r = 1 / np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + np.float32(eps))
    y: Array = (rows * r * weight.astype(np.float32)).astype(x.dtype)
    return y


def add_rms_norm(
    x: Array, residual: Array, weight: Array, eps: float = 1e-6
) -> tuple[Array, Array]:
    """Return y and the sum that is normalized."""
    total: Array = x + residual
    return rms_norm(total, weight, eps), total


def rms_norm_fp8(x: Array, weight: Array, scale: float, eps: float = 1e-6) -> Array:
    """Return y over a scale, in 8 bits."""
    y = rms_norm(x, weight, eps).astype(np.float32) / np.float32(scale)
    quantized: Array = y.astype(ml_dtypes.float8_e4m3fn)
    return quantized


def rms_norm_backward(dy: Array, x: Array, weight: Array, eps: float = 1e-6) -> Any:
    """Return dx and dweight."""
    rows, slopes = x.astype(np.float32), dy.astype(np.float32)
    r = 1 / np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + np.float32(eps))
    xhat, g = rows * r, slopes * weight.astype(np.float32)
    dx = r * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True))
    dweight = (slopes * xhat).reshape(-1, x.shape[-1]).sum(axis=0)
    return dx.astype(x.dtype), dweight.astype(weight.dtype)


def layer_norm(x: Array, weight: Array, bias: Array, eps: float = 1e-5) -> Any:
    """Return y, and of each row the mean and 1/sqrt(var + eps)."""
    rows = x.astype(np.float32)
    mean = rows.mean(axis=-1, keepdims=True)
    r = 1 / np.sqrt(((rows - mean) ** 2).mean(axis=-1, keepdims=True) + np.float32(eps))
    y = (rows - mean) * r * weight.astype(np.float32) + bias.astype(np.float32)
    return y.astype(x.dtype), mean[..., 0], r[..., 0]


def layer_norm_backward(dy: Array, x: Array, mean: Array, rstd: Array, weight: Array) -> Any:
    """Return dx, dweight and dbias."""
    rows, slopes = x.astype(np.float32), dy.astype(np.float32)
    r = rstd[..., np.newaxis]
    xhat, g = (rows - mean[..., np.newaxis]) * r, slopes * weight.astype(np.float32)
    along = xhat * (g * xhat).mean(axis=-1, keepdims=True)
    dx = r * (g - g.mean(axis=-1, keepdims=True) - along)
    kind = weight.dtype
    return dx.astype(x.dtype), (slopes * xhat).sum(axis=0).astype(kind), slopes.sum(axis=0)
