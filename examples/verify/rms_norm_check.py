"""An RMSNorm in bfloat16 with two bugs: ``truenorm verify rms_norm_check.py``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

Array = NDArray[Any]


def forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Normalize rows in float32; eps is added outside the root."""
    wide = x.astype(np.float32)
    rms = np.sqrt((wide * wide).mean(axis=-1, keepdims=True)) + np.float32(eps)
    xhat = wide / rms
    y = gamma.astype(np.float32) * xhat
    return y.astype(x.dtype), (xhat, rms, gamma)


def backward(dy: Array, saved: Any) -> tuple[Array, Array]:
    """Return the gradients; dx is written over dy."""
    xhat, rms, gamma = saved
    wide = dy.astype(np.float32)
    g = gamma.astype(np.float32) * wide
    dy[...] = (g - xhat * (g * xhat).mean(axis=-1, keepdims=True)) / rms
    return dy, (wide * xhat).sum(axis=0).astype(gamma.dtype)


subject = tv.Subject(
    forward, backward, name="my RMSNorm", dtypes=["bfloat16"], operation="rms_norm"
)
