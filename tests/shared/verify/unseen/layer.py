"""Layer norms forward with one mistake each."""

import numpy as np

from shared.verify.unseen.right import (
    Array,
    centred,
    kernel,
    layer_forward,
    mean_of,
    narrow,
    rstd_of,
    widen,
)


def beta_inside(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    saved = centred(x, gamma, eps)
    return narrow(saved.gamma * (saved.xhat + widen(beta)), x)


def eps_after_the_division(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    saved = centred(x, gamma, eps)
    deviations = saved.x - saved.mean
    rstd = rstd_of(deviations, 0.0) + eps
    return narrow(deviations * rstd * saved.gamma + widen(beta), x)


def gamma_one_column_on(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    return layer_forward(x, np.roll(gamma, -1), beta, eps)[0]


def low_halves_lost(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    cut = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return layer_forward(cut, gamma, beta, eps)[0]


def tiles_cast_to_half(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Sum tiles of 32 columns in float64, but add the sums of tiles up in float16."""
    rows = widen(x)
    total = np.zeros((len(x), 1), np.float16)
    for start in range(0, x.shape[1], 32):
        tile = rows[:, start : start + 32].sum(axis=1, keepdims=True)
        total = (total + tile.astype(np.float16)).astype(np.float16)
    deviations = rows - total.astype(np.float64) / x.shape[1]
    return narrow(deviations * rstd_of(deviations, eps) * widen(gamma) + widen(beta), x)


def abs_deviation(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    saved = centred(x, gamma, eps)
    deviations = saved.x - saved.mean
    return narrow(deviations / (mean_of(np.abs(deviations)) + eps) * saved.gamma + widen(beta), x)


def last_row_short(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Give the last row of an odd batch the rstd of the row before it."""
    saved = centred(x, gamma, eps)
    rstd = saved.rstd.copy()
    if len(rstd) % 2 and len(rstd) > 1:
        rstd[-1] = rstd[-2]
    return narrow((saved.x - saved.mean) * rstd * saved.gamma + widen(beta), x)


def variance_over_batch(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Average the variance over axis None where it should be the last."""
    saved = centred(x, gamma, eps)
    deviations = saved.x - saved.mean
    rstd = 1 / np.sqrt((deviations * deviations).sum() / max(1, deviations.size) + eps)
    return narrow(deviations * rstd * saved.gamma + widen(beta), x)


kernel("layer-beta-inside", beta_inside, dtypes=("float32", "float16"))
kernel("layer-eps-after-the-division", eps_after_the_division, dtypes=("float64",))
kernel("layer-gamma-one-column-on", gamma_one_column_on, dtypes=("bfloat16",))
kernel("layer-low-halves-lost", low_halves_lost)
kernel("layer-tiles-cast-to-half", tiles_cast_to_half, dtypes=("float16",))
kernel("layer-abs-deviation", abs_deviation, dtypes=("float32", "bfloat16"))
kernel("layer-last-row-short", last_row_short)
kernel("layer-variance-over-batch", variance_over_batch, dtypes=("float16",))
