"""RMS normalization in NumPy: Hugging Face's formula, and the textbook's in float64, then cast."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

Array = NDArray[Any]


def normalized(x: Array, eps: float, wide: Any) -> tuple[Array, Array]:
    """Return xhat and 1/sqrt(mean(x^2) + eps), computed in a type."""
    given = x.astype(wide)
    r = 1 / np.sqrt((given * given).mean(axis=-1, keepdims=True) + given.dtype.type(eps))
    return given * r, r


def hugging_face_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Normalize in float32, round xhat to the type of x, and multiply in that type.

    float64 is computed in float32, too.
    """
    xhat, r = normalized(x, eps, np.float32)
    return gamma * xhat.astype(x.dtype), (xhat, r, gamma)


def wide_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Normalize in float64, and round once."""
    xhat, r = normalized(x, eps, np.float64)
    return (gamma.astype(np.float64) * xhat).astype(x.dtype), (xhat, r, gamma)


def backward(wide: Any, dy: Array, saved: Any) -> tuple[Array, Array]:
    """Differentiate by hand, in the type in which forward computed."""
    xhat, r, gamma = saved
    slopes = dy.astype(wide)
    g = gamma.astype(wide) * slopes
    dx = r * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True))
    return dx.astype(dy.dtype), (slopes * xhat).sum(axis=0).astype(gamma.dtype)


hugging_face = tv.Subject(
    hugging_face_forward,
    partial(backward, np.float32),
    name="Hugging Face's formula in NumPy",
    dtypes=["float16", "bfloat16", "float32", "float64"],
    operation=tv.RMS_NORM,
)
wide = tv.Subject(
    wide_forward,
    partial(backward, np.float64),
    name="formula in float64, then cast",
    dtypes=["float16", "bfloat16", "float32"],
    operation=tv.RMS_NORM,
)
