"""The textbook form in NumPy, in the type of x and in float64."""

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


CAST = "textbook in float64, then cast"
textbook_form = tv.Subject(forward, textbook.backward, name="textbook NumPy", dtypes=ALL)
wide = tv.Subject(wide_forward, wide_backward, name=CAST, dtypes=ALL[:3])
