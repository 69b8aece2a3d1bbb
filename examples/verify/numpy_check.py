"""A layer norm with two bugs, and a corrected one: ``truenorm verify numpy_check.py``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

Array = NDArray[Any]


def forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
    """Normalize rows; the variance is computed in one pass, in the type of x."""
    mean = x.mean(axis=-1, keepdims=True)
    var = (x * x).mean(axis=-1, keepdims=True) - mean * mean
    rstd = 1 / np.sqrt(var + eps)
    xhat = (x - mean) * rstd
    return gamma * xhat + beta, (xhat, rstd, gamma)


def backward(dy: Array, saved: Any) -> tuple[Array, Array, Array]:
    """Return the gradients; mean(g) is missing from dx."""
    xhat, rstd, gamma = saved
    g = gamma * dy
    dx = rstd * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True))
    return dx, (dy * xhat).sum(axis=0), dy.sum(axis=0)


subject = tv.Subject(forward, backward, name="my kernel", dtypes=["float32"])


def mended_forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
    """Normalize rows in float64 with a two-pass variance, and round once."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + eps)
    xhat = centred * rstd
    return (gamma * xhat + beta).astype(x.dtype), (xhat, rstd, gamma)


def mended_backward(dy: Array, saved: Any) -> tuple[Array, ...]:
    """Return the gradients, with both means, summed in float64 and rounded once."""
    xhat, rstd, gamma = saved
    wide = dy.astype(np.float64)
    g = gamma * wide
    along = xhat * (g * xhat).mean(axis=-1, keepdims=True)
    dx = rstd * (g - g.mean(axis=-1, keepdims=True) - along)
    gradients = dx, (wide * xhat).sum(axis=0), wide.sum(axis=0)
    return tuple(each.astype(dy.dtype) for each in gradients)


mended = tv.Subject(mended_forward, mended_backward, name="my kernel, mended", dtypes=["float32"])
