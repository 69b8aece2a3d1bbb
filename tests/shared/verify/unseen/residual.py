"""RMSNorms forward, and norms of a sum, with one mistake each."""

from typing import Any

import numpy as np

import truenorm.verify as tv
from shared.verify.unseen.right import (
    Array,
    Saved,
    add_layer_forward,
    add_rms_forward,
    added,
    all_narrow,
    kernel,
    layer_forward,
    narrow,
    parameters,
    plain,
    rms_slopes,
    widen,
)

ADD_RMS, ADD_LAYER = tv.norm("add_rms_norm"), tv.norm("add_layer_norm")


def eps_as_a_floor(x: Array, gamma: Array, eps: float) -> Array:
    saved = plain(x, gamma, 0.0)
    return narrow(saved.x / np.sqrt(np.maximum(saved.rstd**-2, eps)) * saved.gamma, x)


def next_power_of_two(x: Array, gamma: Array, eps: float) -> Array:
    """Divide the sum of squares by the width of the block."""
    rows = widen(x)
    width = 1 << max(0, x.shape[1] - 1).bit_length()
    square = (rows * rows).sum(axis=1, keepdims=True) / width
    return narrow(rows / np.sqrt(square + eps) * widen(gamma), x)


def norm_not_rms(x: Array, gamma: Array, eps: float) -> Array:
    """Divide by the length of the row: D is missing."""
    rows = widen(x)
    return narrow(rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True) + eps) * widen(gamma), x)


def x_alone(x: Array, residual: Array, gamma: Array, beta: Array, eps: float) -> Any:
    """Normalize x, and add the residual for the next layer only."""
    return layer_forward(x, gamma, beta, eps)[0], added(x, residual)


def old_residual(x: Array, residual: Array, gamma: Array, eps: float) -> Any:
    y, _, _ = add_rms_forward(x, residual, gamma, eps)
    return y, residual.copy()


def onto_y(x: Array, residual: Array, gamma: Array, beta: Array, eps: float) -> Any:
    """Add the residual after the norm once more."""
    y, total, _ = add_layer_forward(x, residual, gamma, beta, eps)
    saved = layer_forward(total, gamma, beta, eps)[1]
    whole = saved.xhat * saved.gamma + widen(beta) + widen(residual)
    return narrow(whole, y), total


def product_of_slopes(dy: Array, dsum: Array, saved: Saved) -> tuple[Array, ...]:
    """Send dsum through the norm with dy: dx = dnorm(dy + dsum)."""
    both = widen(dy) + widen(dsum)
    g = both * saved.gamma
    xhat = saved.xhat
    dx = saved.rstd * (g - xhat * (g * xhat).sum(axis=-1, keepdims=True) / dy.shape[-1])
    return all_narrow(saved, dx, dx, parameters(dy, saved)[0])


def residual_without_dsum(dy: Array, dsum: Array, saved: Saved) -> tuple[Array, ...]:
    dnorm = rms_slopes(dy, saved)
    return all_narrow(saved, dnorm + widen(dsum), dnorm, parameters(dy, saved)[0])


kernel("rms-eps-as-a-floor", eps_as_a_floor, dtypes=("float32", "float16"), operation=tv.RMS_NORM)
kernel("rms-next-power-of-two", next_power_of_two, dtypes=("bfloat16",), operation=tv.RMS_NORM)
kernel("rms-norm-not-rms", norm_not_rms, dtypes=("float64",), operation=tv.RMS_NORM)
kernel("add-layer-x-alone", x_alone, dtypes=("bfloat16",), operation=ADD_LAYER)
kernel("add-rms-old-residual", old_residual, dtypes=("float16",), operation=ADD_RMS)
kernel("add-layer-onto-y", onto_y, operation=ADD_LAYER)
kernel("add-rms-backward-through-the-norm", add_rms_forward, product_of_slopes, operation=ADD_RMS)
kernel(
    "add-rms-backward-residual-without-dsum",
    add_rms_forward,
    residual_without_dsum,
    dtypes=("bfloat16",),
    operation=ADD_RMS,
)
