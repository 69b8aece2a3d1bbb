"""Forward and backward of layer normalization over the last axis."""

from typing import Any

import numpy as np

Array = Any


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> tuple[Array, Any]:
    """Return y, and the arrays that backward needs."""
    mean = x.mean(axis=-1, keepdims=True, dtype=np.float32)
    centred = x - mean
    var = (centred * centred).mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt(var + x.dtype.type(eps))
    xhat = centred * rstd
    return gamma * xhat + beta, (xhat, gamma, rstd)


def layer_norm_backward(dy: Array, saved: Any) -> tuple[Array, Array, Array]:
    """Return dx, dgamma and dbeta."""
    xhat, gamma, rstd = saved
    g = dy * gamma
    along = (g * xhat).mean(axis=-1, keepdims=True)
    dx = rstd * (g - g.mean(axis=-1, keepdims=True) - xhat * along)
    return dx, (dy * xhat).sum(axis=0), dy.sum(axis=0)
