"""Right RMS normalizations, of which the judge must find nothing to say."""

from collections.abc import Callable
from typing import Any

import numpy as np

from truenorm.verify.operations import RMS_NORM as OPERATION
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array
from verify.planted.base import Kernel
from verify.planted.entry import rms_norm
from verify.planted.exact_subject import ExactKernel
from verify.planted.wide import WideKernel

NARROW = ["float16", "bfloat16", "float32"]
EVERYTHING = list(OPERATION.extensions)
WITH_GAMMA = [each for each in EVERYTHING if each != "no-gamma"]


Function = Callable[..., Any]


def _root(x: Array, eps: float) -> Array:
    """Return 1/sqrt(mean(x^2) + eps), as it is often written."""
    return np.asarray(1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps)))


def _dx(g: Array, xhat: Array, r: Array) -> Array:
    return np.asarray(r * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True)))


def _over_rows(terms: Array) -> Array:
    """Add up all rows in pairs, as a kernel on a GPU does."""
    columns = np.ascontiguousarray(terms.reshape(-1, terms.shape[-1]).T)
    return np.asarray(columns.sum(axis=-1))


def _computed_in(wide: Any, *, early: bool = False) -> tuple[Function, Function]:
    """Return the formula in a type, rounded at the end; `early`: xhat, before gamma, as well."""

    def forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
        given: Array = x.astype(wide)
        scale: Array = gamma.astype(wide)
        r = _root(given, eps)
        xhat = given * r
        product = xhat.astype(x.dtype).astype(wide) * scale if early else xhat * scale
        return product.astype(x.dtype), (xhat, r, scale, gamma.dtype)

    def backward(dy: Array, saved: Any) -> tuple[Array, Array]:
        xhat, r, gamma, of_gamma = saved
        slopes: Array = dy.astype(wide)
        dx = _dx(gamma * slopes, xhat, r)
        return dx.astype(dy.dtype), _over_rows(slopes * xhat).astype(of_gamma)

    return forward, backward


def _scaled_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Normalize in float32, each row divided by a power of two near its largest element first."""
    largest = np.where(np.isfinite(x), np.abs(x), 0).max(axis=-1, keepdims=True)
    unit = np.maximum(np.frexp(largest)[1], int(np.frexp(eps)[1]) // 2)
    scaled = np.ldexp(x, -unit)
    squares = (scaled * scaled).mean(axis=-1, keepdims=True)
    r = 1 / np.sqrt(squares + np.ldexp(np.float32(eps), -2 * unit))
    xhat = scaled * r
    return (gamma * xhat).astype(x.dtype), (xhat, r, unit, gamma)


def _scaled_backward(dy: Array, saved: Any) -> tuple[Array, Array]:
    xhat, r, unit, gamma = saved
    dx = np.ldexp(_dx(gamma * dy, xhat, r), -unit)
    return dx, _over_rows((dy * xhat).astype(np.float64)).astype(gamma.dtype)


RMS_NORM = [
    rms_norm(Kernel(), "the base", NARROW, EVERYTHING),
    rms_norm(WideKernel(), "the base for float64", ["float64"], EVERYTHING),
    rms_norm(ExactKernel(), "exact", ["float32"]),
    *(
        Subject(forward, backward, f"RMSNorm: {name}", dtypes, also, operation=OPERATION)
        for (forward, backward), name, dtypes, also in (
            (_computed_in(np.float64), "textbook in float64, then cast", NARROW, WITH_GAMMA),
            # Beyond float16, squares overflow in float32: that is a finding, and a right one.
            (_computed_in(np.float32, early=True), "Hugging Face's, in float32", ["float16"], []),
            ((_scaled_forward, _scaled_backward), "two passes in float32", ["float32"], []),
        )
    ),
]
