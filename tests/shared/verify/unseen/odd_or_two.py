"""Mistakes that no list of simple ones would have, and two mistakes in each."""

from typing import Any

import numpy as np

import truenorm.verify as tv
from shared.verify.unseen.one import ADD_LAYER, ADD_RMS
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
    rms_slopes,
    rstd_of,
    widen,
)

# Mistakes that no list of simple ones would have.


def newton_once(x: Array, gamma: Array, eps: float) -> Array:
    """Take 1/sqrt from the exponent's bits, with one Newton step where three are due."""
    saved = plain(x, gamma, eps)
    square = (saved.rstd**-2).astype(np.float32)
    bits = np.int32(0x5F3759DF) - (square.view(np.int32) >> 1)
    guess = bits.view(np.float32).astype(np.float64)
    rstd = guess * (1.5 - 0.5 * square * guess * guess)
    return narrow(saved.x * rstd * saved.gamma, x)


def table_of_roots(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Look 1/sqrt up by the first 6 bits of the mantissa, without interpolation."""
    saved = centred(x, gamma, eps)
    mantissa, exponent = np.frexp(saved.rstd**-2)
    entry = np.floor(mantissa * 64) / 64
    rstd = 1 / np.sqrt(np.ldexp(entry, exponent))
    return narrow((saved.x - saved.mean) * rstd * saved.gamma + widen(beta), x)


def stale_mean_in_pairs(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Subtract the first row's mean from both rows of a pair; each variance is its own."""
    rows = widen(x)
    mean = mean_of(rows)
    own = rstd_of(rows - mean, eps)
    mean[1::2] = mean[: len(mean) // 2 * 2 : 2]
    return narrow((rows - mean) * own * widen(gamma) + widen(beta), x)


def right_half_of_next_row(x: Array, gamma: Array, eps: float) -> Array:
    """Write the right half of the columns from the row after."""
    y, _ = rms_forward(x, gamma, eps)
    half = x.shape[1] // 2
    out = y.copy()
    out[:, half:] = np.roll(y, -1, axis=0)[:, half:]
    return out


def clipped_for_eight_bits(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Clip x to ±2, left from a path with eight bits."""
    return layer_forward(np.clip(x, x.dtype.type(-2), x.dtype.type(2)), gamma, beta, eps)[0]


def no_eps_in_the_wide_path(x: Array, gamma: Array, eps: float) -> Array:
    """Forget eps where D is a multiple of 4."""
    return rms_forward(x, gamma, eps if x.shape[1] % 4 else 0.0)[0]


def missing_shuffle(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Leave a butterfly's last step out: even columns and odd columns have statistics each."""
    out = np.empty_like(x)
    for start in (0, 1):
        part = np.s_[:, start::2]
        gain, shift = gamma[start::2], beta[start::2]
        if x[part].shape[1]:
            out[part] = layer_forward(x[part], gain, shift, eps)[0]
    return out


def power_of_two(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Round rstd up to a power of two, so that scaling is a shift."""
    saved = centred(x, gamma, eps)
    rstd = np.exp2(np.ceil(np.log2(saved.rstd)))
    return narrow((saved.x - saved.mean) * rstd * saved.gamma + widen(beta), x)


def masked_slopes(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Keep the mask of a ReLU that stood behind the norm once."""
    kept = np.where(saved.xhat > 0, widen(dy), 0)
    return all_narrow(saved, layer_slopes(kept, saved), *parameters(kept, saved))


def eight_bits_saved(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Save xhat in eight bits, steps of 1/16."""
    xhat = np.clip(np.rint(saved.xhat * 16), -128, 127) / 16
    g = widen(dy) * saved.gamma
    dx = saved.rstd * (g - mean_of(g) - xhat * mean_of(g * xhat))
    return all_narrow(saved, dx, (widen(dy) * xhat).sum(axis=0), widen(dy).sum(axis=0))


def pairs_exchanged(dy: Array, dsum: Array, saved: Saved) -> tuple[Array, ...]:
    """Write dsum with the two halves of each 32-bit word exchanged."""
    order = np.arange(dy.shape[1])
    whole = len(order) // 2 * 2
    order[:whole] = order[:whole] ^ 1
    dx = rms_slopes(dy, saved) + widen(dsum)[:, order]
    return all_narrow(saved, dx, dx, parameters(dy, saved)[0])


def columns_of_another_block(dy: Array, saved: Saved) -> tuple[Array, ...]:
    """Pair dy with xhat of the row 4 before, where there are so many rows, in dgamma."""
    terms = widen(dy) * np.roll(saved.xhat, 4, axis=0)
    return all_narrow(saved, rms_slopes(dy, saved), terms.sum(axis=0))


# Two mistakes in each, as they come together in a first version.


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


kernel("odd-newton-once", newton_once, operation=tv.RMS_NORM)
kernel("odd-table-of-roots", table_of_roots, dtypes=("float32",))
kernel("odd-stale-mean-in-pairs", stale_mean_in_pairs, dtypes=("float32",))
kernel("odd-right-half-of-next-row", right_half_of_next_row, operation=tv.RMS_NORM)
kernel("odd-clipped-for-eight-bits", clipped_for_eight_bits, dtypes=("float16",))
kernel(
    "odd-no-eps-in-the-wide-path",
    no_eps_in_the_wide_path,
    dtypes=("float64",),
    operation=tv.RMS_NORM,
)
kernel("odd-missing-shuffle", missing_shuffle, dtypes=("bfloat16",))
kernel("odd-power-of-two", power_of_two, dtypes=("float64",))
kernel("odd-masked-slopes", layer_forward, masked_slopes)
kernel("odd-eight-bits-saved", layer_forward, eight_bits_saved, dtypes=("bfloat16",))
kernel(
    "odd-pairs-exchanged", add_rms_forward, pairs_exchanged, dtypes=("float16",), operation=ADD_RMS
)
kernel("odd-row-four-before", rms_forward, columns_of_another_block, operation=tv.RMS_NORM)
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
