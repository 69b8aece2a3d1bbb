"""Mistakes that no list of simple ones would have."""

import numpy as np

import truenorm.verify as tv
from shared.verify.unseen.residual import ADD_RMS
from shared.verify.unseen.right import (
    Array,
    Saved,
    add_rms_forward,
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
    "odd-pairs-exchanged",
    add_rms_forward,
    pairs_exchanged,
    dtypes=("float16",),
    operation=ADD_RMS,
)
kernel("odd-row-four-before", rms_forward, columns_of_another_block, operation=tv.RMS_NORM)
