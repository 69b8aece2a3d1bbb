"""Right RMS normalizations, of which the judge must find nothing to say."""

from collections.abc import Callable
from typing import Any

import numpy as np

import truenorm as tn
from truenorm import textbook
from truenorm.verify.operations import RMS_NORM as OPERATION
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array
from verify.planted.base import Kernel
from verify.planted.entry import rms_norm
from verify.planted.exact_subject import ExactKernel
from verify.planted.wide import WideKernel

HALVES, WIDE = ["float16", "bfloat16"], ["float32", "float64"]
NARROW = [*HALVES, "float32"]
EVERYTHING = list(OPERATION.extensions)
FAST = [each for each in EVERYTHING if each != "idle-rows"]
"""Sums that are not exact are cut where the rows are."""
WITH_GAMMA = [each for each in EVERYTHING if each != "no-gamma"]


Function = Callable[..., Any]


def _dx(g: Array, xhat: Array, r: Array) -> Array:
    return np.asarray(r * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True)))


def _over_rows(terms: Array) -> Array:
    """Add up all rows in pairs, as a kernel on a GPU does."""
    columns = np.ascontiguousarray(terms.reshape(-1, terms.shape[-1]).T)
    return np.asarray(columns.sum(axis=-1))


def _of_truenorm(rounding: str, backend: str | None = None) -> tuple[Function, Function]:
    def forward(x: Array, gamma: Array | None, eps: float) -> tuple[Array, Any]:
        return tn.rms_norm_forward(x, gamma, eps=eps, rounding=rounding, backend=backend)

    def backward(dy: Array, saved: Any) -> tuple[Array, Array | None]:
        dx, dgamma, _ = tn.rms_norm_backward(dy, saved, backend=backend)
        return dx, dgamma

    return forward, backward


def _textbook_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64), gamma.astype(np.float64)
        y, saved = textbook.rms_norm_forward(*wide, eps)
        return y.astype(x.dtype), (saved, gamma.dtype)


def _textbook_backward(dy: Array, kept: Any) -> tuple[Array, Array]:
    saved, of_gamma = kept
    with np.errstate(all="ignore"):
        dx, dgamma = textbook.rms_norm_backward(dy.astype(np.float64), saved)
        return dx.astype(dy.dtype), dgamma.astype(of_gamma)


def _early_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Compute xhat in float32, round it, and multiply what is left."""
    given: Array = x.astype(np.float32)
    squares = (given * given).mean(axis=-1, keepdims=True)
    r = 1 / np.sqrt(squares + np.float32(eps))
    xhat = given * r
    return gamma * xhat.astype(x.dtype), (xhat, r, gamma)


def _early_backward(dy: Array, saved: Any) -> tuple[Array, Array]:
    xhat, r, gamma = saved
    slopes: Array = dy.astype(np.float32)
    dx = _dx(gamma.astype(np.float32) * slopes, xhat, r)
    return dx.astype(dy.dtype), _over_rows(slopes * xhat).astype(gamma.dtype)


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
            (_of_truenorm("correct"), "truenorm, correct", WIDE, EVERYTHING),
            (_of_truenorm("correct"), "truenorm, correct, 16 bits", HALVES, EVERYTHING),
            (_of_truenorm("correct", "reference"), "truenorm, correct, NumPy", HALVES, EVERYTHING),
            (_of_truenorm("fast"), "truenorm, fast", WIDE, FAST),
            (_of_truenorm("fast"), "truenorm, fast, 16 bits", HALVES, FAST),
            (_of_truenorm("fast", "reference"), "truenorm, fast, NumPy", HALVES, FAST),
            (
                (_textbook_forward, _textbook_backward),
                "textbook in float64, then cast",
                NARROW,
                WITH_GAMMA,
            ),
            # Beyond float16, squares overflow in float32: that is a finding, and a right one.
            ((_early_forward, _early_backward), "Hugging Face's, in float32", ["float16"], []),
            ((_scaled_forward, _scaled_backward), "two passes in float32", ["float32"], []),
        )
    ),
]
