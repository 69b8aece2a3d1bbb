"""A kernel as it is often written, and its check: ``truenorm verify buggy_check.py``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

Array = NDArray[np.float32]


def forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
    """Compute the variance in one pass: the first mistake."""
    mean = x.mean(axis=-1, keepdims=True)
    var = (x * x).mean(axis=-1, keepdims=True) - mean * mean
    rstd = 1 / np.sqrt(var + np.float32(eps))
    xhat = (x - mean) * rstd
    return gamma * xhat + beta, (xhat, rstd, gamma)


def backward(dy: Array, saved: Any) -> tuple[Array, Array, Array]:
    """Forget mean(g): the second."""
    xhat, rstd, gamma = saved
    g = gamma * dy
    dx = rstd * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True))
    return dx, (dy * xhat).sum(axis=0), dy.sum(axis=0)


subject = tv.Subject(forward, backward, name="my kernel", dtypes=["float32"])
