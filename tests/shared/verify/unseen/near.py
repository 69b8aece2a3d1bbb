"""Mistakes that stand beside a simple one, and are another: a hasty judge would mix them up."""

import numpy as np

import truenorm.verify as tv
from shared.verify.unseen.right import (
    Array,
    Saved,
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
    widen,
)


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


kernel("near-one-too-many", one_too_many)
kernel("near-eps-before-the-division", eps_before_the_division, operation=tv.RMS_NORM)
kernel("near-gamma-reversed", gamma_reversed, dtypes=("float16",), operation=tv.RMS_NORM)
kernel("near-squares-in-single", squares_in_single, dtypes=("float64",), operation=tv.RMS_NORM)
kernel("near-root-of-rows", layer_forward, root_of_rows, dtypes=("bfloat16",))
kernel("near-mean-with-bessel", layer_forward, mean_with_bessel)
kernel("near-mean-of-factors", layer_forward, mean_of_factors, dtypes=("float16",))
kernel("near-first-row-twice", layer_forward, first_row_twice)
kernel("near-dgamma-without-eps", layer_forward, dgamma_of_other_norm, dtypes=("float64",))
