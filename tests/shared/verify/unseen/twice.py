"""Two mistakes in each, as they come together in a first version."""

from typing import Any

import numpy as np

import truenorm.verify as tv
from shared.verify.unseen.residual import ADD_LAYER, ADD_RMS
from shared.verify.unseen.right import (
    Array,
    Saved,
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
    rstd_of,
    widen,
)


def unbiased_and_eps_outside(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    saved = centred(x, gamma, eps)
    deviations = saved.x - saved.mean
    size = x.shape[1]
    variance = (deviations * deviations).sum(axis=1, keepdims=True) / max(1, size - 1)
    return narrow(deviations / (np.sqrt(variance) + eps) * saved.gamma + widen(beta), x)


def offset_and_one_column_on(x: Array, gamma: Array, eps: float) -> Array:
    """Multiply by 1 + gamma, and by that of the next column."""
    saved = plain(x, gamma, eps)
    return narrow(saved.xhat * (1 + np.roll(saved.gamma, -1)), x)


def squared_and_uncentred(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Multiply by gamma twice and forget mean(g): both in dx."""
    g = widen(dy) * saved.gamma * saved.gamma
    dx = saved.rstd * (g - saved.xhat * mean_of(g * saved.xhat))
    return all_narrow(saved, dx, *parameters(dy, saved))


def rstd_squared_and_mean(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Write r² for r³ in the projection; average dgamma over the rows."""
    g = widen(dy) * saved.gamma
    dx = saved.rstd * g - saved.x * saved.rstd**2 * mean_of(g * saved.x)
    return all_narrow(saved, dx, parameters(dy, saved)[0] / max(1, len(dy)))


def swapped_and_eps_doubled(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    return layer_forward(x, beta, gamma, 2 * eps)[0]


def eps_fixed_and_last_missing(x: Array, gamma: Array, eps: float) -> Array:
    """Leave the last column out of the mean square, and eps at 1e-6 whatever is given."""
    del eps
    rows = widen(x)
    square = (rows[:, :-1] ** 2).sum(axis=1, keepdims=True) / x.shape[1]
    return narrow(rows / np.sqrt(square + 1e-6) * widen(gamma), x)


def difference_and_no_root(x: Array, residual: Array, gamma: Array, eps: float) -> Any:
    """Subtract the residual, and divide by the mean square without the root."""
    with np.errstate(all="ignore"):
        total = narrow(widen(x) - widen(residual), x)
    saved = plain(total, gamma, eps)
    return narrow(saved.x * saved.rstd**2 * saved.gamma, x), total


def mean_of_x_and_beta_off(
    x: Array, residual: Array, gamma: Array, beta: Array, eps: float
) -> Any:
    """Take the mean from x before the sum, and subtract beta."""
    total = added(x, residual)
    deviations = widen(total) - mean_of(widen(x))
    return narrow(deviations * rstd_of(deviations, eps) * widen(gamma) - widen(beta), x), total


def first_block_and_bessel(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Take the mean from the first 32 columns, and divide squares by D - 1."""
    rows = widen(x)
    deviations = rows - mean_of(rows[:, :32])
    square = (deviations**2).sum(axis=1, keepdims=True) / max(1, x.shape[1] - 1)
    return narrow(deviations / np.sqrt(square + eps) * widen(gamma) + widen(beta), x)


def half_sums_and_last_row(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Add dgamma and dbeta up in float16, row by row, and stop before the last."""
    slopes = widen(dy)
    kept = []
    for terms in (slopes * saved.xhat, slopes):
        total = np.zeros(dy.shape[1], np.float16)
        for row in terms[:-1]:
            total = total + row.astype(np.float16)
        kept.append(total)
    return all_narrow(saved, layer_slopes(dy, saved), *kept)


def dsum_scaled_and_dgamma_of_x(dy: Array, dsum: Array, saved: Saved) -> tuple[Array, ...]:
    """Scale dsum by rstd too, and take dgamma from the sum that is not normalized."""
    g = widen(dy) * saved.gamma
    dx = saved.rstd * (g - saved.xhat * mean_of(g * saved.xhat) + widen(dsum))
    return all_narrow(saved, dx, dx, (widen(dy) * saved.x).sum(axis=0))


def means_exchanged_and_dbeta_of_g(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Exchange mean(g) and mean(g*xhat); add up g for dbeta."""
    g = widen(dy) * saved.gamma
    dx = saved.rstd * (g - mean_of(g * saved.xhat) - saved.xhat * mean_of(g))
    return all_narrow(saved, dx, parameters(dy, saved)[0], g.sum(axis=0))


kernel("two-unbiased-and-eps-outside", unbiased_and_eps_outside)
kernel(
    "two-offset-and-one-column-on",
    offset_and_one_column_on,
    dtypes=("bfloat16",),
    operation=tv.RMS_NORM,
)
kernel("two-squared-and-uncentred", layer_forward, squared_and_uncentred, dtypes=("float16",))
kernel(
    "two-rstd-squared-and-mean",
    rms_forward,
    rstd_squared_and_mean,
    dtypes=("float64",),
    operation=tv.RMS_NORM,
)
kernel("two-swapped-and-eps-doubled", swapped_and_eps_doubled)
kernel("two-eps-fixed-and-last-missing", eps_fixed_and_last_missing, operation=tv.RMS_NORM)
kernel(
    "two-difference-and-no-root", difference_and_no_root, dtypes=("float16",), operation=ADD_RMS
)
kernel("two-mean-of-x-and-beta-off", mean_of_x_and_beta_off, operation=ADD_LAYER)
kernel("two-first-block-and-bessel", first_block_and_bessel, dtypes=("bfloat16",))
kernel("two-half-sums-and-last-row", layer_forward, half_sums_and_last_row, dtypes=("float16",))
kernel(
    "two-dsum-scaled-and-dgamma-of-x",
    add_rms_forward,
    dsum_scaled_and_dgamma_of_x,
    operation=ADD_RMS,
)
kernel("two-means-exchanged-and-dbeta-of-g", layer_forward, means_exchanged_and_dbeta_of_g)
