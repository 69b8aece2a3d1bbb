"""Norms with one mistake each."""

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
    centred,
    kernel,
    layer_forward,
    layer_slopes,
    mean_of,
    narrow,
    parameters,
    plain,
    rms_forward,
    rms_slopes,
    rstd_of,
    widen,
)

ADD_RMS, ADD_LAYER = tv.norm("add_rms_norm"), tv.norm("add_layer_norm")


# Layer norms forward with one mistake each.


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


# RMSNorms forward, and norms of a sum, with one mistake each.


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


# Mistakes that stand beside a simple one, and are another: a hasty judge would mix them up.


def one_too_many(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Divide the sum of squares by D + 1."""
    saved = centred(x, gamma, eps)
    deviations = saved.x - saved.mean
    variance = (deviations * deviations).sum(axis=1, keepdims=True) / (x.shape[1] + 1)
    return narrow(deviations / np.sqrt(variance + eps) * saved.gamma + widen(beta), x)


def eps_before_the_division(x: Array, gamma: Array, eps: float) -> Array:
    """Add eps to the sum of squares, then divide by D."""
    return rms_forward(x, gamma, eps / max(1, x.shape[1]))[0]


def gamma_reversed(x: Array, gamma: Array, eps: float) -> Array:
    return rms_forward(x, gamma[::-1], eps)[0]


def squares_in_single(x: Array, gamma: Array, eps: float) -> Array:
    """Add up the squares of float64 rows in float32."""
    single = x.astype(np.float32)
    square = (single * single).sum(axis=1, keepdims=True, dtype=np.float32) / np.float32(
        x.shape[1]
    )
    saved = plain(x, gamma, eps)
    return narrow(saved.x / np.sqrt(square.astype(np.longdouble) + eps) * saved.gamma, x)


def root_of_rows(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Divide dgamma by the root of the number of rows."""
    dgamma, dbeta = parameters(dy, saved)
    return all_narrow(saved, layer_slopes(dy, saved), dgamma / np.sqrt(np.float64(len(dy))), dbeta)


def mean_with_bessel(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Divide the sum of g by D - 1."""
    g = widen(dy) * saved.gamma
    mean = g.sum(axis=-1, keepdims=True) / max(1, dy.shape[-1] - 1)
    dx = saved.rstd * (g - mean - saved.xhat * mean_of(g * saved.xhat))
    return all_narrow(saved, dx, *parameters(dy, saved))


def mean_of_factors(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Take mean(dy)*mean(gamma) for the mean of their product."""
    g = widen(dy) * saved.gamma
    mean = mean_of(widen(dy)) * mean_of(saved.gamma)
    dx = saved.rstd * (g - mean - saved.xhat * mean_of(g * saved.xhat))
    return all_narrow(saved, dx, *parameters(dy, saved))


def first_row_twice(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Start dbeta with the first row, then add every row."""
    dgamma, dbeta = parameters(dy, saved)
    return all_narrow(saved, layer_slopes(dy, saved), dgamma, dbeta + widen(dy)[:1].sum(axis=0))


def dgamma_of_other_norm(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Divide rows by sqrt(mean square) without eps in dgamma alone."""
    deviations = saved.x - saved.mean
    inverse = 1 / np.sqrt(mean_of(deviations * deviations))
    dgamma = (widen(dy) * deviations * inverse).sum(axis=0)
    return all_narrow(saved, layer_slopes(dy, saved), dgamma, parameters(dy, saved)[1])


# Gradients with one mistake each, of forward passes that are right.


def no_division(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Subtract the sum of g*xhat where its mean is due."""
    g = widen(dy) * saved.gamma
    dx = saved.rstd * (g - saved.xhat * (g * saved.xhat).sum(axis=-1, keepdims=True))
    return all_narrow(saved, dx, parameters(dy, saved)[0])


def wrong_sign(dy: Array, saved: Saved) -> tuple[Array, ...]:
    g = widen(dy) * saved.gamma
    dx = saved.rstd * (g - mean_of(g) + saved.xhat * mean_of(g * saved.xhat))
    return all_narrow(saved, dx, *parameters(dy, saved))


def projection_without_gamma(dy: Array, saved: Saved) -> tuple[Array, ...]:
    g = widen(dy) * saved.gamma
    dx = saved.rstd * (g - mean_of(g) - saved.xhat * mean_of(widen(dy) * saved.xhat))
    return all_narrow(saved, dx, *parameters(dy, saved))


def last_row_missing(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Leave the last row out of dgamma: range(rows - 1)."""
    terms = widen(dy) * saved.xhat
    return all_narrow(saved, rms_slopes(dy, saved), terms[:-1].sum(axis=0))


def swapped(dy: Array, saved: Saved) -> tuple[Array, ...]:
    dgamma, dbeta = parameters(dy, saved)
    return all_narrow(saved, layer_slopes(dy, saved), dbeta, dgamma)


def tail_rows_dropped(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Add up whole blocks of 16 rows alone, if there is one."""
    whole = len(dy) // 16 * 16 or len(dy)
    terms = widen(dy)
    sums = (terms * saved.xhat)[:whole].sum(axis=0), terms[:whole].sum(axis=0)
    return all_narrow(saved, layer_slopes(dy, saved), *sums)


def rstd_of_the_row_before(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Scale dx of a row by the rstd of the row before; its xhat is right."""
    dx = layer_slopes(dy, saved) / saved.rstd * np.roll(saved.rstd, 1, axis=0)
    return all_narrow(saved, dx, *parameters(dy, saved))


kernel("layer-beta-inside", beta_inside, dtypes=("float32", "float16"))
kernel("layer-eps-after-the-division", eps_after_the_division, dtypes=("float64",))
kernel("layer-gamma-one-column-on", gamma_one_column_on, dtypes=("bfloat16",))
kernel("layer-low-halves-lost", low_halves_lost)
kernel("layer-tiles-cast-to-half", tiles_cast_to_half, dtypes=("float16",))
kernel("layer-abs-deviation", abs_deviation, dtypes=("float32", "bfloat16"))
kernel("layer-last-row-short", last_row_short)
kernel("layer-variance-over-batch", variance_over_batch, dtypes=("float16",))
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
kernel("near-one-too-many", one_too_many)
kernel("near-eps-before-the-division", eps_before_the_division, operation=tv.RMS_NORM)
kernel("near-gamma-reversed", gamma_reversed, dtypes=("float16",), operation=tv.RMS_NORM)
kernel("near-squares-in-single", squares_in_single, dtypes=("float64",), operation=tv.RMS_NORM)
kernel("near-root-of-rows", layer_forward, root_of_rows, dtypes=("bfloat16",))
kernel("near-mean-with-bessel", layer_forward, mean_with_bessel)
kernel("near-mean-of-factors", layer_forward, mean_of_factors, dtypes=("float16",))
kernel("near-first-row-twice", layer_forward, first_row_twice)
kernel("near-dgamma-without-eps", layer_forward, dgamma_of_other_norm, dtypes=("float64",))
kernel("rms-backward-no-division", rms_forward, no_division, operation=tv.RMS_NORM)
kernel("layer-backward-wrong-sign", layer_forward, wrong_sign, dtypes=("float64",))
kernel("layer-backward-projection-without-gamma", layer_forward, projection_without_gamma)
kernel(
    "rms-backward-last-row-missing",
    rms_forward,
    last_row_missing,
    dtypes=("bfloat16",),
    operation=tv.RMS_NORM,
)
kernel("layer-backward-swapped", layer_forward, swapped, dtypes=("float16",))
kernel("layer-backward-tail-rows-dropped", layer_forward, tail_rows_dropped)
kernel("layer-backward-rstd-of-the-row-before", layer_forward, rstd_of_the_row_before)
