"""Gradients with one mistake each, of forward passes that are right."""

import numpy as np

import truenorm.verify as tv
from shared.verify.unseen.right import (
    Array,
    Saved,
    all_narrow,
    kernel,
    layer_forward,
    layer_slopes,
    mean_of,
    parameters,
    rms_forward,
    rms_slopes,
    widen,
)


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
