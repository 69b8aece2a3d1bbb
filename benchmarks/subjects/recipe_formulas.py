"""Formulas of kernels that need a GPU, computed in float32 as the kernels do.

T is the type of x, W that of the weight. The places of roundings were read from the projects'
sources; no line of their code is here. The bits are those of the formula, not of the kernel.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

Array = NDArray[Any]


def wide(array: Array) -> Array:
    """Return the same numbers in float32."""
    return array.astype(np.float32)


def rstd(rows: Array, eps: float) -> Array:
    """Return 1/sqrt(mean(x^2) + eps) of rows of float32."""
    mean = np.mean(rows * rows, axis=-1, keepdims=True)
    return np.asarray(1 / np.sqrt(mean + np.float32(eps)))


def late(x: Array, gamma: Array, eps: float) -> Array:
    """[x*r*w]_T: vLLM's CUDA kernel, FlashInfer, quack, Transformer Engine."""
    return np.asarray((wide(x) * rstd(wide(x), eps) * wide(gamma)).astype(x.dtype))


def early(x: Array, gamma: Array, eps: float) -> Array:
    """[[x*r]_T*w]_T: Liger, casting mode "llama"; vLLM's CUDA kernel to 0.19.1."""
    xhat = (wide(x) * rstd(wide(x), eps)).astype(x.dtype)
    return np.asarray((wide(xhat) * wide(gamma)).astype(x.dtype))


def vllm_native(x: Array, gamma: Array, eps: float) -> Array:
    """[[x*r]_W*w]_T: vLLM's native path."""
    xhat = (wide(x) * rstd(wide(x), eps)).astype(gamma.dtype)
    return np.asarray((wide(xhat) * wide(gamma)).astype(x.dtype))


def apex_rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    """w*[x*r]_V, V the type of the output: apex."""
    return np.asarray((wide(x) * rstd(wide(x), eps)).astype(x.dtype) * gamma.astype(x.dtype))


def apex_layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """w*[(x - mu)*r]_V + b, each step in V: apex."""
    c = wide(x) - np.mean(wide(x), axis=-1, keepdims=True)
    xhat = (c * rstd(c, eps)).astype(x.dtype)
    return np.asarray(xhat * gamma.astype(x.dtype) + beta.astype(x.dtype))


def zero_centred(x: Array, gamma: Array, eps: float) -> Array:
    """[x*r*(1 + w)]_T, 1 + w in float32: Liger with offset 1, Transformer Engine."""
    return np.asarray((wide(x) * rstd(wide(x), eps) * (1 + wide(gamma))).astype(x.dtype))


def gain_added_in_weight_type(x: Array, gamma: Array, eps: float) -> Array:
    """[x*r*[1 + w]_W]_T: Transformer Engine with one switch."""
    gain = (gamma + np.ones((), gamma.dtype)).astype(gamma.dtype)
    return late(x, gain, eps)


def liger_none(x: Array, gamma: Array, eps: float) -> Array:
    """Every step in T, eps too; sums in float32, then rounded: Liger, mode "none"."""
    squares = np.mean(wide(x * x), axis=-1, keepdims=True).astype(x.dtype)
    w = squares + np.asarray(eps, x.dtype)
    r = (1 / np.sqrt(wide(w))).astype(x.dtype)
    return np.asarray(x * r * gamma.astype(x.dtype))


def add_rounded(x: Array, residual: Array, gamma: Array, eps: float) -> tuple[Array, Array]:
    """[s]_T is stored and normalized: vLLM's CUDA kernel."""
    total = (wide(x) + wide(residual)).astype(x.dtype)
    return late(total, gamma, eps), total


def add_rounded_early(x: Array, residual: Array, gamma: Array, eps: float) -> tuple[Array, Array]:
    """`add_rounded` with xhat rounded: Liger, and vLLM's CUDA kernel to 0.19.1."""
    total = (wide(x) + wide(residual)).astype(x.dtype)
    return early(total, gamma, eps), total


def add_unrounded(x: Array, residual: Array, gamma: Array, eps: float) -> tuple[Array, Array]:
    """[s]_T is stored, and s normalized: FlashInfer, quack's reference."""
    total = wide(x) + wide(residual)
    return late(total, gamma, eps).astype(x.dtype), total.astype(x.dtype)


def add_native(x: Array, residual: Array, gamma: Array, eps: float) -> tuple[Array, Array]:
    """`add_unrounded` with the product of vLLM's native path."""
    total = wide(x) + wide(residual)
    return vllm_native(total, gamma, eps).astype(x.dtype), total.astype(x.dtype)


def subject(function: Callable[..., Any], operation: str = "rms_norm") -> tv.Subject:
    """Return a subject of both 16-bit types."""
    return tv.Subject(function, dtypes=["bfloat16", "float16"]).with_operation(operation)


plain_late = subject(late)
plain_early = subject(early)
plain_vllm_native = subject(vllm_native)
plain_apex_rms_norm = subject(apex_rms_norm)
plain_apex_layer_norm = subject(apex_layer_norm, "layer_norm")
plain_zero_centred = subject(zero_centred, "rms_norm,gain=zero-centred")
plain_one_added = subject(gain_added_in_weight_type, "rms_norm,gain=zero-centred")
plain_liger_none = subject(liger_none)
fused_rounded = subject(add_rounded, "add_rms_norm")
fused_early = subject(add_rounded_early, "add_rms_norm")
fused_unrounded = subject(add_unrounded, "add_rms_norm")
fused_native = subject(add_native, "add_rms_norm")
