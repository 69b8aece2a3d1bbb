"""Tier 2: rows in double-double, for float64 data and for rows undecided in tier 1.

x, g, eps and the parameters have exponents of their own, so that no intermediate over- or
underflows. Each result is rounded once, from its scaled pair. The bounds are in units of
W = 2**-106; docs/inside/error-analysis.md derives them, and its equations are cited here. TINY
covers what is lost below the range of float64 when a small part is scaled to the exponent of a
large one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels import double_double as dd
from truenorm.kernels.call import Call, Flags, Norm
from truenorm.kernels.double_double import ABSENT, Pair
from truenorm.kernels.rounding import Tested, round_pair, same_roundings
from truenorm.kernels.tuning import SLACK, TIER2_OFFSET, TINY, W

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]


class PairRows(NamedTuple):
    """Centred rows: c*2**exponent is x - mean*2**mean_exponent, w*4**w_exponent is var + eps.

    All arrays but c have shape (rows, 1). `ratio` is 4**(exponent - w_exponent), at most 1.
    """

    c: Pair
    exponent: Integers
    w: Pair
    r: Pair
    w_exponent: Integers
    scaled_eps: Float64
    ratio: Float64
    spread: Float64
    centring: Float64
    w_bound: Float64
    r_bound: Float64
    mean: Pair
    mean_exponent: Integers
    constant: NDArray[np.bool_]


def describe(x: Float64, call: Call) -> PairRows:
    """Centre the rows, and compute w and r of each."""
    eps = call.eps
    size = x.shape[1]
    h = 3 * (size - 1).bit_length()
    first = x[:, :1] if call.norm.centred else 0.0
    constant = (x == first).all(axis=1, keepdims=True)
    x_exponent = _largest_exponent(x)
    mean, residual, (high, low) = _centred(np.ldexp(x, -x_exponent), call.norm)
    c_exponent = np.where(constant, 0, _largest_exponent(high))
    c = scaled((np.where(constant, 0.0, high), np.where(constant, 0.0, low)), -c_exponent)

    s = np.sqrt((c[0] * c[0]).mean(axis=1, keepdims=True))
    residual_size = np.abs(np.ldexp(residual[0], -c_exponent.astype(np.int32)))
    centring = np.where(constant, 0.0, SLACK * (h + 10) * W * (s + residual_size))  # (P1)
    if not call.norm.centred:
        centring = np.where(constant, 0.0, TINY)  # (R3)
    v = dd.divide_float(dd.tree_sum(dd.multiply(c, c), 1), float(size))
    v_bound = (h + 20) * W * s * s + 2 * centring * s  # (P2)

    half = (int(np.frexp(eps)[1]) + 1) // 2 if eps > 0 else ABSENT
    exponent = np.where(constant, half, x_exponent + c_exponent)
    w_exponent = np.maximum(exponent, half)
    ratio = _power(2 * (exponent - w_exponent))
    scaled_eps = np.ldexp(eps, np.clip(-2 * w_exponent, -2200, 2200).astype(np.int32))
    w = dd.add_float((v[0] * ratio, v[1] * ratio), scaled_eps)
    w_bound = SLACK * v_bound * ratio / w[0] + 4 * W  # (P3)
    return PairRows(
        c=c,
        exponent=exponent,
        w=w,
        r=dd.inverse_root(w),
        w_exponent=w_exponent,
        scaled_eps=scaled_eps,
        ratio=ratio,
        spread=s,
        centring=centring,
        w_bound=w_bound,
        r_bound=w_bound / 2 * SLACK + 32 * W,  # (P4)
        mean=mean,
        mean_exponent=x_exponent,
        constant=constant,
    )


def saved_of(rows: PairRows, norm: Norm) -> list[Float64]:
    """Return the saved statistics: the mean as a pair and its exponent, or the root mean square.

    The last is negative; the one that fast mode saves is not.
    """
    if norm.centred:
        return [*rows.mean, rows.mean_exponent + TIER2_OFFSET]
    return [-np.maximum(np.ldexp(rows.spread, rows.exponent.astype(np.int32)), 5e-324)]


def have_moved(rows: PairRows, saved: Float64, norm: Norm) -> Flags:
    """Return the rows whose mean, or root mean square, is not the saved one."""
    now = saved_of(rows, norm)
    if not norm.centred:
        close = np.abs(now[0] - saved) <= 2.0**-46 * -now[0] + 1e-323
    else:
        high, low, exponent = saved.T[..., np.newaxis]
        # The mean has an error of 2**-100 here, and 2**-92 if another backend computed it.
        close = np.abs((now[0] - high) + (now[1] - low)) <= 2.0**-90
        close &= now[2] == exponent
    moved: Flags = ~close[:, 0]
    return moved


def _centred(x: Float64, norm: Norm) -> tuple[Pair, Pair, Pair]:
    """Centre rows twice; return the first mean, the mean after that, and c."""
    size = float(x.shape[1])
    if not norm.centred:
        nothing = (np.zeros((len(x), 1)), np.zeros((len(x), 1)))
        return nothing, nothing, (x, np.zeros_like(x))
    mean = dd.divide_float(dd.tree_sum((x, np.zeros_like(x)), 1), size)
    once = dd.add_float(dd.two_sum(x, -mean[0]), -mean[1])
    residual = dd.divide_float(dd.tree_sum(once, 1), size)
    return mean, residual, dd.add(once, (-residual[0], -residual[1]))


def forward(rows: PairRows, call: Call) -> Tested:
    """Compute y of the rows."""
    gamma_part, gamma_exponent = np.frexp(call.gamma.finite)
    beta_part, beta_exponent = np.frexp(call.beta.finite)
    t = dd.multiply_float(dd.multiply(rows.c, rows.r), gamma_part)
    t_exponent = rows.exponent - rows.w_exponent + gamma_exponent
    beta_exponent = np.where(beta_part == 0, ABSENT, beta_exponent)
    common = np.maximum(t_exponent + dd.exponent_of(t[0]), beta_exponent)
    shift = t_exponent - common
    t = scaled(t, shift)
    high, low = dd.add_float(t, np.ldexp(beta_part, clipped(beta_exponent - common)))
    bound = SLACK * (
        np.abs(t[0]) * (rows.r_bound + 16 * W)
        + np.ldexp(np.abs(gamma_part) * (rows.r[0] * rows.centring), clipped(shift))
        + 4 * W * np.abs(high)
    )  # (P5)
    return rounding_test((high, low), bound + TINY, common, call.x_format)


def backward(rows: PairRows, dy: Float64, call: Call) -> Tested:
    """Compute dx of the rows."""
    centred_rows, gamma = call.norm.centred, call.gamma.finite
    size = dy.shape[1]
    h = 3 * (size - 1).bit_length()
    gamma_part, gamma_exponent = np.frexp(gamma)
    dy_part, dy_exponent = np.frexp(dy)
    product = dd.two_product(gamma_part, dy_part)
    exponents = np.where(product[0] == 0, ABSENT, gamma_exponent + dy_exponent)
    g_exponent = exponents.max(axis=1, keepdims=True)
    g = scaled(product, exponents - g_exponent)
    if centred_rows and size == 2:
        # (D24): every error is relative, (P9).
        difference = dd.add(g, (-g[0][:, ::-1], -g[1][:, ::-1]))
        share = dd.divide((rows.scaled_eps / 2, np.zeros_like(rows.scaled_eps)), rows.w)
        z = dd.multiply(dd.multiply(difference, share), rows.r)
        bound = SLACK * np.abs(z[0]) * (rows.r_bound + rows.w_bound + 40 * W)
    else:
        centred = g
        if centred_rows:
            a = dd.divide_float(dd.tree_sum(g, 1), float(size))
            centred = dd.add(g, (-a[0], -a[1]))
        p = dd.divide_float(dd.tree_sum(dd.multiply(centred, rows.c), 1), float(size))
        q = dd.divide(p, rows.w)
        q = (q[0] * rows.ratio, q[1] * rows.ratio)
        along = dd.multiply(rows.c, q)
        z = dd.multiply(dd.add(centred, (-along[0], -along[1])), rows.r)
        bound = _dx_bound(rows, g[0], centred[0], q[0], z[0], h)
    if_zero = np.where(g_exponent == ABSENT, 0, g_exponent)
    exponent = np.broadcast_to(if_zero - rows.w_exponent, z[0].shape)
    constant_g = centred_rows & (
        (g[0] == g[0][:, :1]) & (g[1] == g[1][:, :1]) & (exponents > g_exponent - 900)
    ).all(axis=1)
    constant_g |= (dy == 0).all(axis=1) | (gamma == 0).all()
    tested = rounding_test(z, bound + TINY, exponent, call.x_format)
    tested.values[constant_g] = 0
    tested.undecided[constant_g] = False
    return tested


def _dx_bound(
    rows: PairRows, g: Float64, centred: Float64, q: Float64, z: Float64, h: int
) -> Float64:
    """Return the bound (P8), from those of mean(g) (P6) and of q (P7)."""
    g_rms = np.sqrt((g * g).mean(axis=1, keepdims=True))
    a_bound = (h + 4) * W * g_rms
    p_bound = (2 * h + 24) * W * g_rms * rows.spread + g_rms * rows.centring
    q_size = np.abs(q)
    q_bound = p_bound * rows.ratio / rows.w[0] + q_size * (rows.w_bound + 15 * W)
    parts = (
        a_bound
        + q_size * rows.centring
        + 3 * W * np.abs(centred)
        + np.abs(rows.c[0]) * (q_bound + 12 * W * q_size)
    )
    bound: Float64 = SLACK * (rows.r[0] * parts + np.abs(z) * (rows.r_bound + 12 * W))
    return bound


def rounding_test(z: Pair, bound: Float64, exponent: Integers, target: FloatFormat) -> Tested:
    """Round the scaled pair where z - bound and z + bound agree."""
    ends = [dd.two_sum(z[0], z[1] + change) for change in (-bound, bound)]
    lower, upper = (round_pair(high, low, exponent, target) for high, low in ends)
    return same_roundings(lower, upper)


def _largest_exponent(values: Float64) -> NDArray[np.int64]:
    """Return the exponent of the largest element of each row, 0 for a row of zeros."""
    largest = np.abs(values).max(axis=1, keepdims=True)
    return np.where(largest == 0, 0, dd.exponent_of(largest))


def clipped(exponents: NDArray[np.integer]) -> NDArray[np.int32]:
    """Return exponents for ldexp; beyond these limits all results are the same."""
    clipped: NDArray[np.int32] = np.clip(exponents, -2200, 2200).astype(np.int32)
    return clipped


def scaled(pair: Pair, exponents: NDArray[np.integer]) -> Pair:
    """Return a pair times a power of two."""
    return np.ldexp(pair[0], clipped(exponents)), np.ldexp(pair[1], clipped(exponents))


def _power(exponents: NDArray[np.integer]) -> Float64:
    return np.ldexp(1.0, clipped(exponents))
