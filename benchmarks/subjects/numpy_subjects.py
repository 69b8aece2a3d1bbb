"""The textbook forms in NumPy, in the type of x and in float64; and Hugging Face's RMSNorm."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv
from truenorm import textbook

Array = NDArray[Any]
ALL = ["float16", "bfloat16", "float32", "float64"]


def forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, textbook.Saved]:
    """Normalize in the type of x; a Python float as eps would make float32 of bfloat16."""
    return textbook.forward(x, gamma, beta, x.dtype.type(eps))


def in_float64(compute: Any, x: Array, *arguments: Any) -> tuple[Array, Any]:
    """Run a forward pass in float64, and cast y to the type of x."""
    *parameters, eps = arguments
    y, saved = compute(*(each.astype(np.float64) for each in (x, *parameters)), eps)
    return y.astype(x.dtype), (x.dtype, saved)


def wide_forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
    """Run layer norm in float64, and cast."""
    return in_float64(textbook.forward, x, gamma, beta, eps)


def wide_backward(dy: Array, saved: Any) -> tuple[Array, ...]:
    """Run backward in float64, and cast."""
    dtype, wide = saved
    return tuple(each.astype(dtype) for each in textbook.backward(dy.astype(np.float64), wide))


def rms_norm_wide_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Run RMSNorm in float64, and cast."""
    return in_float64(textbook.rms_norm_forward, x, gamma, eps)


def rms_norm_wide_backward(dy: Array, saved: Any) -> tuple[Array, ...]:
    """Run backward of RMSNorm in float64, and cast."""
    dtype, wide = saved
    gradients = textbook.rms_norm_backward(dy.astype(np.float64), wide)
    return tuple(each.astype(dtype) for each in gradients)


def hugging_face_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Normalize in float32, round xhat to the type of x, and multiply in that type.

    float64 is computed in float32, too.
    """
    rows = x.astype(np.float32)
    r = 1 / np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + np.float32(eps))
    xhat = rows * r
    return gamma * xhat.astype(x.dtype), (xhat, r, gamma)


def hugging_face_backward(dy: Array, saved: Any) -> tuple[Array, Array]:
    """Differentiate by hand, in float32."""
    xhat, r, gamma = saved
    wide = dy.astype(np.float32)
    g = gamma.astype(np.float32) * wide
    dx = r * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True))
    return dx.astype(dy.dtype), (wide * xhat).sum(axis=0).astype(gamma.dtype)


CAST = "textbook in float64, then cast"
textbook_form = tv.Subject(forward, textbook.backward, name="textbook NumPy", dtypes=ALL)
wide = tv.Subject(wide_forward, wide_backward, name=CAST, dtypes=ALL[:3])
rms_norm_wide = tv.Subject(
    rms_norm_wide_forward,
    rms_norm_wide_backward,
    name=CAST,
    dtypes=ALL[:3],
    operation=tv.RMS_NORM,
)
hugging_face = tv.Subject(
    hugging_face_forward,
    hugging_face_backward,
    name="Hugging Face's formula in NumPy",
    dtypes=ALL,
    operation=tv.RMS_NORM,
)
