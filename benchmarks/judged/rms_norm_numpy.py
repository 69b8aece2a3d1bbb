"""RMS normalization in NumPy: Hugging Face's formula, and the textbook's in float64, then cast."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv
from truenorm import textbook

Array = NDArray[Any]


def hugging_face_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Normalize in float32, round xhat to the type of x, and multiply in that type.

    float64 is computed in float32, too.
    """
    given = x.astype(np.float32)
    r = 1 / np.sqrt((given * given).mean(axis=-1, keepdims=True) + np.float32(eps))
    xhat = given * r
    return gamma * xhat.astype(x.dtype), (xhat, r, gamma)


def hugging_face_backward(dy: Array, saved: Any) -> tuple[Array, Array]:
    """Differentiate by hand, in float32."""
    xhat, r, gamma = saved
    slopes = dy.astype(np.float32)
    g = gamma.astype(np.float32) * slopes
    dx = r * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True))
    return dx.astype(dy.dtype), (slopes * xhat).sum(axis=0).astype(gamma.dtype)


def wide_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Widen, normalize, and cast."""
    y, saved = textbook.rms_norm_forward(x.astype(np.float64), gamma.astype(np.float64), eps)
    return y.astype(x.dtype), (x.dtype, saved)


def wide_backward(dy: Array, saved: Any) -> tuple[Array, ...]:
    """Widen, differentiate, and cast."""
    dtype, kept = saved
    gradients = textbook.rms_norm_backward(dy.astype(np.float64), kept)
    return tuple(each.astype(dtype) for each in gradients)


hugging_face = tv.Subject(
    hugging_face_forward,
    hugging_face_backward,
    name="Hugging Face's formula in NumPy",
    dtypes=["float16", "bfloat16", "float32", "float64"],
    operation=tv.RMS_NORM,
)
wide = tv.Subject(
    wide_forward,
    wide_backward,
    name="textbook in float64, then cast",
    dtypes=["float16", "bfloat16", "float32"],
    operation=tv.RMS_NORM,
)
