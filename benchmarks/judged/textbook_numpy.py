"""The textbook form in NumPy: in the type of x, and in float64 with a cast at the end."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv
from truenorm import textbook

Array = NDArray[Any]


def forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, textbook.Saved]:
    """Normalize in the type of x; as a Python number, eps would make float32 of bfloat16."""
    return textbook.forward(x, gamma, beta, x.dtype.type(eps))


def forward64(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
    """Widen, normalize, and cast."""
    x64, gamma64, beta64 = (each.astype(np.float64) for each in (x, gamma, beta))
    y, saved = textbook.forward(x64, gamma64, beta64, eps)
    return y.astype(x.dtype), (x.dtype, saved)


def backward64(dy: Array, saved: Any) -> tuple[Array, ...]:
    """Widen, differentiate, and cast."""
    dtype, kept = saved
    return tuple(each.astype(dtype) for each in textbook.backward(dy.astype(np.float64), kept))


plain = tv.Subject(
    forward,
    textbook.backward,
    name="textbook NumPy",
    dtypes=["float16", "bfloat16", "float32", "float64"],
)
wide = tv.Subject(
    forward64,
    backward64,
    name="textbook in float64, then cast",
    dtypes=["float16", "bfloat16", "float32"],
)
