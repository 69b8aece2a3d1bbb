"""One hundred hand-written forward/backward pairs in NumPy: 50 right, 50 wrong.

Written without knowledge of the checker, and verified by differences of eighth order in
extended precision. Do not change a pair so that it gets another verdict.
"""
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return"
# ruff: noqa: ARG001, ARG002, ARG005
# A backward pass takes every input, whether it needs it or not. A pair is written once and
# read by people only: types would double the signatures.

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Function = Callable[..., Any]

LOW_PRECISION: Any = np.float32  # the type that "cast inside" forwards compute in


@dataclass(frozen=True)
class UnseenPair:
    """A forward and a backward pass, the inputs, and whether the backward is right."""

    name: str
    forward: Function
    backward: Function
    inputs: list[Array]
    right: bool
    why: str


UNSEEN: list[UnseenPair] = []


def _right(
    name: str, forward: Function, backward: Function, inputs: list[Array], why: str
) -> None:
    UNSEEN.append(UnseenPair(name, forward, backward, inputs, True, why))


def _wrong(
    name: str, forward: Function, backward: Function, inputs: list[Array], why: str
) -> None:
    UNSEEN.append(UnseenPair(name, forward, backward, inputs, False, why))


def _normal(
    seed: int, *shape: int, scale: float = 1.0, shift: float = 0.0, dtype: Any = np.float64
) -> Array:
    values = np.random.default_rng(seed).standard_normal(shape)
    return np.asarray(shift + scale * values, dtype=dtype)


def _normals(first_seed: int, *shapes: tuple[int, ...], **options: Any) -> list[Array]:
    return [_normal(first_seed + k, *shape, **options) for k, shape in enumerate(shapes)]


def _uniform(seed: int, low: float, high: float, *shape: int, dtype: Any = np.float64) -> Array:
    return np.asarray(np.random.default_rng(seed).uniform(low, high, shape), dtype=dtype)


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _log_softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _normal_cdf(x):
    return 0.5 * (1.0 + _erf(x / math.sqrt(2.0)))


def _normal_pdf(x):
    return np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


# Dense layers, broadcasting, einsum


def ridge_back_half_penalty(dy, w, x, t):
    e = dy * (x @ w - t) / t.size
    return x.T @ e + dy * 1e-3 * w, np.outer(e, w), -e


# fmt: off
_right("affine_minibatch", lambda x, w, b: x @ w + b,
       lambda dy, x, w, b: (dy @ w.T, x.T @ dy, dy.sum(axis=0)), _normals(1, (8, 5), (5, 4), (4,)),
       "textbook formula")
_right("three_way_broadcast_with_scalar", lambda a, b, c: a * b + c * a,
       lambda dy, a, b, c: ((dy * (b + c)).sum(axis=1, keepdims=True), (dy * a).sum(axis=(0,
        2))[:, None], np.asarray((dy * a).sum())),
       [_normal(4, 4, 1, 3), _normal(5, 5, 1), np.array(-0.37)],
       "every gradient is summed over exactly the axes its input was broadcast over")
_wrong("affine_tiny_feature_doubled", lambda x, w, b: x @ w + b,
       lambda dy, x, w, b: (dy @ w.T, x.T @ dy * [[1.0], [1.0], [1.0], [2.0]], dy.sum(axis=0)),
       [_normal(9, 10, 4) * np.array([1.0, 30.0, 1e-2, 1e-6]), _normal(10, 4, 3), _normal(11, 3)],
       "the weight gradient of the feature with values near 1e-6 is doubled")
_wrong("outer_broadcast_wrong_axis", lambda a, b: a * b + np.sin(a),
       lambda dy, a, b: ((dy * (b + np.cos(a))).sum(axis=0)[:, None], (dy * a).sum(axis=0,
        keepdims=True)), _normals(12, (6, 1), (1, 6)),
       "da is summed over axis 0 and reshaped; it should be summed over axis 1")
_wrong("bilinear_form_swapped_indices", lambda x, w, z: np.einsum("bi,oij,bj->bo", x, w, z),
       lambda dy, x, w, z: (np.einsum("bo,oij,bj->bi", dy, w, z), np.einsum("bi,bo,bj->oji", x,
        dy, z), np.einsum("bo,oij,bi->bj", dy, w, x)), _normals(17, (6, 4), (3, 4, 4), (6, 4)),
       "the weight gradient has its last two (equally long) axes swapped")
_wrong("ridge_penalty_factor_two",
       lambda w, x, t: np.asarray(0.5 * ((x @ w - t) ** 2).mean() + 1e-3 * (w * w).sum()),
       ridge_back_half_penalty, _normals(20, (6,), (25, 6), (25,)),
       "the penalty's gradient lacks the factor 2, an error of about 1e-3")
# fmt: on


# Convolution and pooling


def conv2d(x, w, b, *, stride, pad):
    kh, kw = w.shape[2:]
    oh = (x.shape[2] + 2 * pad - kh) // stride + 1
    ow = (x.shape[3] + 2 * pad - kw) // stride + 1
    xp = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    y = np.zeros((x.shape[0], w.shape[0], oh, ow), dtype=x.dtype) + b[:, None, None]
    for i in range(kh):
        for j in range(kw):
            window = xp[:, :, i : i + stride * oh : stride, j : j + stride * ow : stride]
            y += np.einsum("nchw,oc->nohw", window, w[:, :, i, j])
    return y


def conv2d_back(dy, x, w, b, *, stride, pad, wrap=False):
    kh, kw = w.shape[2:]
    oh, ow = dy.shape[2:]
    mode: Any = "wrap" if wrap else "constant"
    width = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    xp = np.pad(x, width, mode=mode)
    dxp = np.zeros_like(xp)
    dw = np.zeros_like(w)
    for i in range(kh):
        for j in range(kw):
            rows = slice(i, i + stride * oh, stride)
            cols = slice(j, j + stride * ow, stride)
            dw[:, :, i, j] = np.einsum("nohw,nchw->oc", dy, xp[:, :, rows, cols])
            dxp[:, :, rows, cols] += np.einsum("nohw,oc->nchw", dy, w[:, :, i, j])
    dx = dxp[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]]
    return dx, dw, dy.sum(axis=(0, 2, 3))


def conv1d(x, w, *, stride, dilation):
    taps = w.shape[-1]
    n = (x.shape[-1] - dilation * (taps - 1) - 1) // stride + 1
    y = np.zeros((w.shape[0], n), dtype=x.dtype)
    for k in range(taps):
        start = k * dilation
        y += w[:, :, k] @ x[:, start : start + stride * n : stride]
    return y


def conv1d_back(dy, x, w, *, stride, dilation, flip=False):
    taps, n = w.shape[-1], dy.shape[-1]
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for k in range(taps):
        part = slice(k * dilation, k * dilation + stride * n, stride)
        dw[:, :, k] = dy @ x[:, part].T
        dx[:, part] += w[:, :, taps - 1 - k if flip else k].T @ dy
    return dx, dw


def maxpool(x):
    view = np.lib.stride_tricks.sliding_window_view(x, (3, 3))[::2, ::2]
    return view.max(axis=(2, 3))


def maxpool_back(dy, x, *, add=True):
    dx = np.zeros_like(x)
    for i in range(dy.shape[0]):
        for j in range(dy.shape[1]):
            window = x[2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            a, b = divmod(int(window.argmax()), 3)
            if add:
                dx[2 * i + a, 2 * j + b] += dy[i, j]
            else:
                dx[2 * i + a, 2 * j + b] = dy[i, j]
    return dx


def _pool_counts(shape):
    ones = np.pad(np.ones(shape), 1)
    return np.lib.stride_tricks.sliding_window_view(ones, (3, 3))[::2, ::2].sum(axis=(2, 3))


def avgpool(x):
    view = np.lib.stride_tricks.sliding_window_view(np.pad(x, 1), (3, 3))[::2, ::2]
    return view.sum(axis=(2, 3)) / _pool_counts(x.shape)


def avgpool_back(dy, x, *, exclude=True):
    g = dy / _pool_counts(x.shape) if exclude else dy / 9.0
    dxp = np.zeros((x.shape[0] + 2, x.shape[1] + 2), dtype=x.dtype)
    for i in range(3):
        for j in range(3):
            dxp[i : i + 2 * dy.shape[0] : 2, j : j + 2 * dy.shape[1] : 2] += g
    return dxp[1:-1, 1:-1]


def _distinct(seed, rows, cols):
    """Values at least 0.05 apart: no ties, no near-ties."""
    rng = np.random.default_rng(seed)
    ranks = rng.permutation(rows * cols).astype(np.float64)
    return (0.1 * ranks + rng.uniform(-0.02, 0.02, rows * cols)).reshape(rows, cols) - 3.0


# fmt: off
_right("conv2d_stride2_pad1", partial(conv2d, stride=2, pad=1),
       partial(conv2d_back, stride=2, pad=1), _normals(30, (2, 3, 7, 6), (4, 3, 3, 3), (4,)),
       "scatter of the same slices that forward gathers")
_wrong("conv2d_weight_gradient_wraps", partial(conv2d, stride=1, pad=1),
       partial(conv2d_back, stride=1, pad=1, wrap=True),
       _normals(33, (2, 2, 6, 7), (3, 2, 3, 3), (3,)),
       "the weight gradient pads x periodically, where forward pads with zeros")
_right("conv1d_dilated_strided_float32", partial(conv1d, stride=2, dilation=3),
       partial(conv1d_back, stride=2, dilation=3),
       _normals(36, (3, 31), (4, 3, 4), dtype=np.float32),
       "scatter of the same slices that forward gathers, in float32")
_wrong("conv1d_kernel_flipped_float32", partial(conv1d, stride=1, dilation=2),
       partial(conv1d_back, stride=1, dilation=2, flip=True),
       _normals(38, (2, 24), (3, 2, 3), dtype=np.float32),
       "dx uses the kernel in reversed order of taps")
_right("maxpool_overlapping_windows", maxpool, maxpool_back, [_distinct(42, 11, 9)],
       "winners of several windows collect the gradient of each")
_wrong("maxpool_overlapping_assigned", maxpool, partial(maxpool_back, add=False),
       [_distinct(43, 9, 11)], "winners of several windows keep the gradient of the last one only")
_wrong("avgpool_padding_counted_in_backward", avgpool, partial(avgpool_back, exclude=False),
       [_normal(45, 9, 8)],
       "windows at the border are divided by 9 although forward divides by fewer")
# fmt: on


# Attention, rotary embedding


def _scores(q, k, causal):
    s = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(q.shape[-2], k.shape[-2], dtype=bool), s, -np.inf)
    return s


def attention(q, k, v, *, causal=False, keep=None):
    p = _softmax(_scores(q, k, causal))
    return (p if keep is None else p * keep) @ v


def attention_back(dy, q, k, v, *, causal=False, keep=None, mask_times=1):
    scale = 1.0 / math.sqrt(q.shape[-1])
    p = _softmax(_scores(q, k, causal))
    used = p if keep is None else p * keep
    dv = np.swapaxes(used, -1, -2) @ dy
    dp = dy @ np.swapaxes(v, -1, -2)
    if keep is not None:
        dp = dp * keep**mask_times
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True))
    dk = np.swapaxes(ds, -1, -2) @ q
    return ds @ k * scale, dk * scale, dv


def _split_heads(x):
    n, t, d = x.shape
    return x.reshape(n, t, 2, d // 2).transpose(0, 2, 1, 3)


def _merge_heads(x):
    n, h, t, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(n, t, h * d)


def multihead(x, wq, wk, wv, wo):
    q, k, v = (_split_heads(x @ w) for w in (wq, wk, wv))
    return _merge_heads(attention(q, k, v)) @ wo


def multihead_back(dy, x, wq, wk, wv, wo):
    q, k, v = (_split_heads(x @ w) for w in (wq, wk, wv))
    o = _merge_heads(attention(q, k, v))
    dwo = np.einsum("nti,nto->io", o, dy)
    heads = attention_back(_split_heads(dy @ wo.T), q, k, v)
    dx = np.zeros_like(x)
    dws = []
    for g, w in zip(heads, (wq, wk, wv), strict=True):
        merged = _merge_heads(g)
        dx += merged @ w.T
        dws.append(np.einsum("nti,nto->io", x, merged))
    return dx, *dws, dwo


def rotary(x, *, sign=1.0):
    t, d = x.shape[-2:]
    angle = np.arange(t)[:, None] * 100.0 ** (-np.arange(d // 2) / (d // 2))
    c, s = np.cos(angle), sign * np.sin(angle)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return np.concatenate([a * c - b * s, a * s + b * c], axis=-1)


_KEEP = (np.random.default_rng(50).uniform(size=(5, 6)) < 0.8) / 0.8

# fmt: off
_right("attention_causal", partial(attention, causal=True), partial(attention_back, causal=True),
       _normals(51, (2, 6, 4), (2, 6, 4), (2, 6, 4)),
       "textbook formula; masked weights are exactly zero")
_right("multihead_self_attention", multihead, multihead_back,
       [_normal(54, 2, 5, 8)] + [_normal(55 + i, 8, 8, scale=0.4) for i in range(4)],
       "textbook formula; x collects the gradient of queries, keys and values")
_wrong("attention_dropout_mask_twice", partial(attention, keep=_KEEP),
       partial(attention_back, keep=_KEEP, mask_times=2), _normals(65, (5, 4), (6, 4), (6, 4)),
       "the dropout mask with its factor 1/0.8 is applied twice on the way to the scores")
_right("rotary_embedding", rotary, lambda dy, x: rotary(dy, sign=-1.0), [_normal(68, 3, 7, 8)],
       "the adjoint of a rotation is the rotation by the negative angle")
# fmt: on


# Normalisation


def layernorm(x, gamma, beta):
    c = x - x.mean(axis=-1, keepdims=True)
    return gamma * c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + 1e-5) + beta


def layernorm_back(dy, x, gamma, beta, *, variance_term=True, eps=1e-5):
    c = x - x.mean(axis=-1, keepdims=True)
    inv = 1.0 / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps)
    xhat = c * inv
    g = dy * gamma
    dx = g - g.mean(axis=-1, keepdims=True)
    if variance_term:
        dx = dx - xhat * (g * xhat).mean(axis=-1, keepdims=True)
    return inv * dx, (dy * xhat).sum(axis=0), dy.sum(axis=0)


def batchnorm(x, gamma, beta):
    mean, var = x.mean(axis=0), x.var(axis=0)
    y = gamma * (x - mean) / np.sqrt(var + 1e-3) + beta
    return y, mean, var * x.shape[0] / (x.shape[0] - 1)


def batchnorm_back(dy, x, gamma, beta, *, statistics=True):
    dout, dmean, dvar = dy
    n = x.shape[0]
    c = x - x.mean(axis=0)
    inv = 1.0 / np.sqrt(x.var(axis=0) + 1e-3)
    xhat = c * inv
    g = dout * gamma
    dx = inv * (g - g.mean(axis=0) - xhat * (g * xhat).mean(axis=0))
    if statistics:
        dx = dx + dmean / n + dvar * 2.0 * c / (n - 1)
    return dx, (dout * xhat).sum(axis=0), dout.sum(axis=0)


def zscore_back(dy, x, *, ddof=1):
    n = x.shape[0]
    std = x.std(axis=0, ddof=1)
    z = (x - x.mean(axis=0)) / std
    return (dy - dy.mean(axis=0) - z * (dy * z).sum(axis=0) / (n - ddof)) / std


def rmsnorm(x, gamma, *, eps):
    return gamma * x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)


def rmsnorm_back(dy, x, gamma, *, eps, flaw=""):
    ms = (x * x).mean(axis=-1, keepdims=True)
    r = np.sqrt(ms) + eps if flaw == "eps" else np.sqrt(ms + eps)
    g = dy * gamma
    along = ((dy if flaw == "gamma" else g) * x).mean(axis=-1, keepdims=True)
    return g / r - x * along / r**3, (dy * x / r).sum(axis=0)


def _interleaved(x):
    n, c, length = x.shape
    return x.reshape(n, c // 3, 3, length).transpose(0, 2, 1, 3).reshape(n, 3, -1)


def _interleaved_back(x, shape):
    n, c, length = shape
    return x.reshape(n, 3, c // 3, length).transpose(0, 2, 1, 3).reshape(shape)


def groupnorm(x, gamma):
    g = x.reshape(x.shape[0], 3, -1)
    c = g - g.mean(axis=-1, keepdims=True)
    z = c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + 1e-5)
    return z.reshape(x.shape) * gamma[:, None]


def groupnorm_back_interleaved(dy, x, gamma):
    g = _interleaved(x)
    c = g - g.mean(axis=-1, keepdims=True)
    inv = 1.0 / np.sqrt((c * c).mean(axis=-1, keepdims=True) + 1e-5)
    z = c * inv
    dz = _interleaved(dy * gamma[:, None])
    mean = dz.mean(axis=-1, keepdims=True)
    dg = inv * (dz - mean - z * (dz * z).mean(axis=-1, keepdims=True))
    dgamma = (dy * _interleaved_back(z, x.shape)).sum(axis=(0, 2))
    return _interleaved_back(dg, x.shape), dgamma


def l2_rows_back(dy, x, *, through_norm=True):
    norm = np.sqrt((x * x).sum(axis=1, keepdims=True))
    y = x / norm
    along = y * (dy * y).sum(axis=1, keepdims=True) if through_norm else 0.0
    return (dy - along) / norm


# fmt: off
_right("layernorm_offset_1e5", layernorm, layernorm_back,
       [_normal(70, 4, 16, shift=1e5), _normal(71, 16), _normal(72, 16)],
       "textbook formula; the offset only costs digits")
_wrong("layernorm_variance_term_missing", layernorm, partial(layernorm_back, variance_term=False),
       _normals(73, (5, 12), (12,), (12,)), "the derivative through the variance is left out")
_wrong("layernorm_other_eps_in_backward", layernorm, partial(layernorm_back, eps=1e-6),
       [_normal(68, 5, 12, scale=0.2), _normal(69, 12), _normal(79, 12)],
       "eps is 1e-5 in forward and 1e-6 in backward: about 1e-4 off at a variance of 0.04")
_right("batchnorm_three_outputs", batchnorm, batchnorm_back,
       [_normal(76, 12, 5, scale=3.0), _normal(77, 5), _normal(78, 5)],
       "the gradients of output, mean and unbiased variance are added up")
_wrong("batchnorm_statistics_outputs_ignored", batchnorm,
       partial(batchnorm_back, statistics=False), _normals(79, (9, 4), (4,), (4,)),
       "mean and variance are outputs too, but their gradients are ignored")
_wrong("zscore_ddof_confusion", lambda x: (x - x.mean(axis=0)) / x.std(axis=0, ddof=1),
       partial(zscore_back, ddof=0), [_normal(82, 40, 3, scale=2.0, shift=5.0)],
       "forward divides by the sample deviation (n - 1), the last term of backward by n")
_right("rmsnorm_float32", partial(rmsnorm, eps=1e-6), partial(rmsnorm_back, eps=1e-6),
       _normals(83, (6, 24), (24,), dtype=np.float32), "textbook formula in float32")
_wrong("rmsnorm_eps_outside_root", partial(rmsnorm, eps=1e-2),
       partial(rmsnorm_back, eps=1e-2, flaw="eps"), _normals(85, (5, 10), (10,)),
       "backward adds eps to the root, forward adds it under the root")
_wrong("rmsnorm_float32_gamma_missing", partial(rmsnorm, eps=1e-6),
       partial(rmsnorm_back, eps=1e-6, flaw="gamma"),
       [_normal(87, 4, 32, dtype=np.float32), _normal(88, 32, scale=0.3, shift=1.0,
        dtype=np.float32)],
       "the term through the root mean square lacks gamma (float32, gamma near 1)")
_wrong("groupnorm_groups_interleaved", groupnorm, groupnorm_back_interleaved,
       _normals(91, (2, 6, 5), (6,)),
       "backward takes every third channel as a group, forward takes neighbours")
_right("l2_rows_of_very_different_scale",
       lambda x: x / np.sqrt((x * x).sum(axis=1, keepdims=True)), l2_rows_back,
       [_normal(93, 5, 4) * np.array([[1e-6], [1.0], [1e6], [1e-2], [1e3]])],
       "projection onto the tangent space; gradients range from 1e-6 to 1e6")
_wrong("l2_rows_norm_held_constant", lambda x: x / np.sqrt((x * x).sum(axis=1, keepdims=True)),
       partial(l2_rows_back, through_norm=False), [_normal(94, 4, 6, scale=10.0)],
       "the norm is treated as a constant")
# fmt: on


# Softmax family and losses


def softmax_t_back(dy, x, *, temperature, used):
    p = _softmax(x / temperature)
    return p * (dy - (dy * p).sum(axis=-1, keepdims=True)) / used


_LABELS = np.array([3, 0, 6, 2, 2, 5])


def smoothed_ce(x):
    n, k = x.shape
    target = np.full((n, k), 0.1 / k)
    target[np.arange(n), _LABELS] += 0.9
    return np.asarray(-(target * _log_softmax(x)).sum() / n)


def smoothed_ce_back(dy, x, *, over_others=False):
    n, k = x.shape
    target = np.full((n, k), 0.1 / (k - 1) if over_others else 0.1 / k)
    target[np.arange(n), _LABELS] = 0.9 if over_others else 0.9 + 0.1 / k
    return dy * (_softmax(x) - target) / n


def logsumexp(x):
    m = x.max(axis=1, keepdims=True)
    return (m + np.log(np.exp(x - m).sum(axis=1, keepdims=True)))[:, 0]


_BINARY = np.random.default_rng(100).integers(0, 2, 24).astype(np.float64)


def bce_logits(x, *, weight=1.0):
    lw = 1.0 + (weight - 1.0) * _BINARY
    soft = np.maximum(-x, 0.0) + np.log1p(np.exp(-np.abs(x)))
    return np.asarray(((1.0 - _BINARY) * x + lw * soft).mean())


def bce_logits_back(dy, x, *, weight=1.0, flaw=False):
    lw = 1.0 + (weight - 1.0) * _BINARY
    if flaw:
        lw = np.where(x < 0, 1.0, lw)
    return dy * ((1.0 - _BINARY) - lw * _sigmoid(-x)) / x.size


def focal(x):
    z = np.where(_BINARY > 0, x, -x)
    logp = -(np.maximum(-z, 0.0) + np.log1p(np.exp(-np.abs(z))))
    return -(_sigmoid(-z) ** 2) * logp


def focal_back(dy, x, *, through_weight=True):
    z = np.where(_BINARY > 0, x, -x)
    logp = -(np.maximum(-z, 0.0) + np.log1p(np.exp(-np.abs(z))))
    p, q = _sigmoid(z), _sigmoid(-z)
    dz = -(q**3)
    if through_weight:
        dz = dz + 2.0 * p * q * q * logp
    return np.where(_BINARY > 0, dz, -dz) * dy


def huber(pred, target):
    e = pred - target
    a = np.abs(e)
    return np.asarray(np.where(a < 1.5, 0.5 * e * e, 1.5 * (a - 0.75)).sum())


def huber_back(dy, pred, target, *, slope=1.5):
    e = pred - target
    g = dy * np.where(np.abs(e) < 1.5, e, slope * np.sign(e))
    return g, -g


def squared_hinge(x):
    rows = np.arange(x.shape[0])
    margin = np.maximum(0.0, 1.0 + x - x[rows, _LABELS][:, None])
    margin[rows, _LABELS] = 0.0
    return (margin**2).sum(axis=1)


def squared_hinge_back(dy, x):
    rows = np.arange(x.shape[0])
    margin = np.maximum(0.0, 1.0 + x - x[rows, _LABELS][:, None])
    margin[rows, _LABELS] = 0.0
    dx = 2.0 * margin * dy[:, None]
    dx[rows, _LABELS] = -dx.sum(axis=1)
    return dx


def kl_gaussians_back(dy, m1, l1, m2, l2, *, full=True):
    g = dy[:, None]
    dm = g * (m1 - m2) / np.exp(l2)
    dl1 = 0.5 * g * (np.exp(l1 - l2) - 1.0)
    second = np.exp(l1) + (m1 - m2) ** 2 if full else np.exp(l1)
    return dm, dl1, -dm, 0.5 * g * (1.0 - second / np.exp(l2))


def contrastive(a, b, log_scale):
    logits = np.exp(log_scale) * (a @ b.T)
    return np.asarray(-np.diag(_log_softmax(logits)).mean())


def contrastive_back(dy, a, b, log_scale, *, learn_scale=True):
    scale = np.exp(log_scale)
    sim = a @ b.T
    d = dy * (_softmax(scale * sim) - np.eye(a.shape[0])) / a.shape[0]
    ds = np.asarray((d * sim).sum() * scale) if learn_scale else None
    return scale * d @ b, scale * d.T @ a, ds


def gaussian_mixture(x, logits, mu, log_s):
    z = (x[:, None] - mu) / np.exp(log_s)
    joint = _log_softmax(logits) - log_s - 0.5 * z * z
    return -logsumexp(joint)


def gaussian_mixture_back(dy, x, logits, mu, log_s):
    s = np.exp(log_s)
    z = (x[:, None] - mu) / s
    r = _softmax(_log_softmax(logits) - log_s - 0.5 * z * z) * dy[:, None]
    dlogits = -(r - _softmax(logits) * dy[:, None]).sum(axis=0)
    return (r * z / s).sum(axis=1), dlogits, -(r * z / s).sum(axis=0), (r - r * z * z).sum(axis=0)


def crf_log_partition(unary, trans):
    alpha = unary[0]
    for u in unary[1:]:
        alpha = u + logsumexp((alpha[:, None] + trans).T)
    return np.asarray(logsumexp(alpha[None, :])[0])


def crf_log_partition_back(dy, unary, trans):
    steps = unary.shape[0]
    alpha, beta = np.zeros_like(unary), np.zeros_like(unary)
    alpha[0] = unary[0]
    for t in range(1, steps):
        alpha[t] = unary[t] + logsumexp((alpha[t - 1][:, None] + trans).T)
    for t in range(steps - 2, -1, -1):
        beta[t] = logsumexp(trans + unary[t + 1] + beta[t + 1])
    log_z = logsumexp(alpha[-1:])[0]
    dtrans = np.zeros_like(trans)
    for t in range(1, steps):
        pair = alpha[t - 1][:, None] + trans + unary[t] + beta[t]
        dtrans += np.exp(pair - log_z)
    return dy * np.exp(alpha + beta - log_z), dy * dtrans


# fmt: off
_right("softmax_low_temperature", lambda x: _softmax(x / 0.03),
       partial(softmax_t_back, temperature=0.03, used=0.03),
       [_normal(101, 6, 9) * np.array([[1.0], [0.05], [1.0], [0.2], [0.02], [0.5]])],
       "textbook formula; some rows are saturated, others are not")
_wrong("softmax_temperature_forgotten", lambda x: _softmax(x / 0.9),
       partial(softmax_t_back, temperature=0.9, used=1.0), [_normal(102, 5, 7, dtype=np.float32)],
       "the factor 1/temperature is missing (float32)")
_right("log_softmax_wide_logits", _log_softmax,
       lambda dy, x: dy - np.exp(_log_softmax(x)) * dy.sum(axis=-1, keepdims=True),
       [_uniform(103, -60.0, 60.0, 5, 8)], "textbook formula; probabilities go down to 1e-50")
_wrong("cross_entropy_smoothing_over_others", smoothed_ce,
       partial(smoothed_ce_back, over_others=True), [_normal(105, 6, 7)],
       "backward spreads the smoothing over k - 1 classes, forward over k")
_right("logsumexp_offset_1e5", logsumexp, lambda dy, x: _softmax(x) * dy[:, None],
       [_normal(106, 6, 11, shift=1e5)], "softmax times dy; the offset only costs digits")
_right("bce_with_logits_saturated", bce_logits, bce_logits_back, [_uniform(108, -40.0, 40.0, 24)],
       "stable form; gradients go down to 1e-18")
_wrong("bce_positive_weight_lost_for_negative_logits", partial(bce_logits, weight=1.3),
       partial(bce_logits_back, weight=1.3, flaw=True), [_normal(109, 24, scale=2.0, shift=2.0)],
       "the weight of positives is forgotten in the branch of negative logits")
_wrong("focal_loss_weight_held_constant", focal, partial(focal_back, through_weight=False),
       [_normal(111, 24, scale=2.0)], "the modulating weight is treated as a constant")
_wrong("huber_rare_branch_without_delta", huber, partial(huber_back, slope=1.0),
       [np.append(_uniform(112, -1.2, 1.2, 39), -3.4), _uniform(113, -0.2, 0.2, 40)],
       "the linear branch, reached by one element of 40, lacks the factor delta")
_right("squared_multiclass_hinge", squared_hinge, squared_hinge_back, [_normal(114, 6, 7)],
       "the label's score collects the negative sum of the others")
_wrong("kl_of_two_gaussians_term_missing",
       lambda m1, l1, m2, l2: (0.5 * (l2 - l1 + (np.exp(l1) + (m1 - m2) ** 2) / np.exp(l2) -
        1.0).sum(axis=1)), partial(kl_gaussians_back, full=False),
       [_normal(119 + i, 4, 6, scale=0.5) for i in range(4)],
       "the gradient of the second log-variance lacks the squared distance of the means")
_right("contrastive_loss_learned_scale", contrastive, contrastive_back,
       [_normal(123, 6, 4, scale=0.6), _normal(124, 6, 4, scale=0.6), np.array(1.2)],
       "textbook formula; the 0-d log-scale gets its chain-rule factor")
_wrong("contrastive_loss_scale_none", contrastive, partial(contrastive_back, learn_scale=False),
       [_normal(125, 6, 4, scale=0.6), _normal(126, 6, 4, scale=0.6), np.array(0.4)],
       "the log-scale matters, but None is returned for it")
_right("gaussian_mixture_likelihood", gaussian_mixture, gaussian_mixture_back,
       [_normal(127, 15, scale=2.0), _normal(128, 3), _normal(129, 3, scale=2.0), _normal(130, 3)],
       "responsibilities times the derivatives of the components")
_right("softmax_row_shift_none", lambda x, shift: _softmax(x + shift[:, None]),
       lambda dy, x, shift: (softmax_t_back(dy, x, temperature=1.0, used=1.0), None),
       [_normal(131, 4, 6), _normal(132, 4, scale=3.0)],
       "softmax does not change with a shift of the row, so None (zero) is true")
_right("crf_log_partition", crf_log_partition, crf_log_partition_back,
       [_normal(133, 7, 4, scale=2.0), _normal(134, 4, 4)],
       "marginals from the forward-backward algorithm")
# fmt: on


# Elementwise functions

_GELU_C = math.sqrt(2.0 / math.pi)


def gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(_GELU_C * (x + 0.044715 * x**3)))


def gelu_tanh_back(dy, x, *, cubic=0.044715):
    t = np.tanh(_GELU_C * (x + cubic * x**3))
    inner = _GELU_C * (1.0 + 3.0 * cubic * x * x)
    return dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner)


def gelu_erf_back(dy, x, *, c):
    return dy * (_normal_cdf(x) + x * c * np.exp(-0.5 * x * x))


def silu_back(dy, x, *, cut=-math.inf):
    s = _sigmoid(x)
    return np.where(x < cut, 0.0, dy * (s + x * s * _sigmoid(-x)))


def softplus(x, *, beta):
    z = beta * x
    return (np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))) / beta


def softplus_back(dy, x, *, beta, threshold=math.inf):
    z = beta * x
    return dy * np.where(z > threshold, 1.0, _sigmoid(z))


_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def prelu_back_in_place(dy, x, slope):
    negative = x <= 0
    dslope = np.where(negative, dy * x, 0.0).sum(axis=(0, 2))
    dy *= np.where(negative, slope[:, None], 1.0)
    return dy, dslope


def leaky_in_place(x):
    x[x < 0] *= 0.1
    return x


def logistic_map(x, r):
    for _ in range(12):
        x = r * x * (1.0 - x)
    return x


def logistic_map_back(dy, x, r):
    states = [x]
    for _ in range(11):
        states.append(r * states[-1] * (1.0 - states[-1]))
    dr = np.zeros_like(r)
    for s in reversed(states):
        dr = dr + (dy * s * (1.0 - s)).sum()
        dy = dy * r * (1.0 - 2.0 * s)
    return dy, np.asarray(dr)


# fmt: off
_right("gelu_tanh_1200_wide", gelu_tanh, gelu_tanh_back,
       [np.linspace(-12.0, 12.0, 1200).reshape(30, 40)],
       "derivative of the tanh form; both ends are saturated")
_wrong("gelu_tanh_constant_mistyped", gelu_tanh, partial(gelu_tanh_back, cubic=0.044751),
       [_normal(140, 50)], "0.044751 instead of 0.044715 in backward")
_wrong("gelu_erf_constant_truncated", lambda x: x * _normal_cdf(x),
       partial(gelu_erf_back, c=0.3989), [_normal(142, 40)],
       "1/sqrt(2 pi) is truncated to 0.3989 (relative error 1e-4)")
_right("silu_saturated_both_sides", lambda x: x * _sigmoid(x), silu_back,
       [np.concatenate([_normal(143, 30, scale=3.0), [-600.0, -90.0, -38.0, 37.0, 700.0]])],
       "product rule with stable sigmoids")
_wrong("silu_negative_tail_cut", lambda x: x * _sigmoid(x), partial(silu_back, cut=-5.0),
       [np.append(_normal(144, 30), [-5.6, -8.0])],
       "two elements below -5 get gradient zero, the true one being about -0.01")
_right("softplus_beta_wide", partial(softplus, beta=3.0), partial(softplus_back, beta=3.0),
       [np.concatenate([_uniform(145, -6.0, 6.0, 40), [-230.0, 250.0, -20.0, 1e6]])],
       "sigmoid of beta x; saturated elements beside ordinary ones")
_wrong("softplus_threshold_in_backward_only", partial(softplus, beta=2.0),
       partial(softplus_back, beta=2.0, threshold=8.0),
       [_uniform(146, -3.0, 3.9, 30)[None, :] + np.array([[0.0], [0.9]])],
       "above beta x = 8 backward says 1, an error of up to 3e-4")
_wrong("selu_alpha_rounded",
       lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(np.minimum(x, 0.0))),
       lambda dy, x: dy * _SELU_SCALE * np.where(x > 0, 1.0, 1.6733 * np.exp(np.minimum(x, 0.0))),
       [_normal(147, 40)], "alpha is rounded to 1.6733 in backward: 2.2e-5 off for negative x")
_right("tanh_steep_and_saturated", lambda x: np.tanh(1e3 * x),
       lambda dy, x: dy * 1e3 * (1.0 - np.tanh(1e3 * x) ** 2),
       [np.concatenate([_normal(148, 30, scale=1e-3), [0.019, -0.012, 1.0, -0.5]])],
       "1 - tanh^2 times the slope; cancels where saturated, which is only rounding")
_right("prelu_backward_writes_into_dy", lambda x, slope: np.where(x > 0, x, slope[:, None] * x),
       prelu_back_in_place, [_normal(149, 4, 3, 10), np.array([0.25, -0.1, 0.01])],
       "right formula, computed in place in dy")
_right("leaky_relu_forward_in_place", leaky_in_place, lambda dy, x: np.where(x < 0, 0.1 * dy, dy),
       [_uniform(150, 0.05, 2.0, 5, 8) * np.where(_normal(151, 5, 8) > 0, 1.0, -1.0)],
       "right formula; forward overwrites its input and returns it")
_right("log_sqrt_over_16_decades", lambda x: np.log(x) * np.sqrt(x),
       lambda dy, x: dy * (np.sqrt(x) / x + 0.5 * np.log(x) / np.sqrt(x)),
       [10.0 ** np.linspace(-8.0, 8.0, 41)], "product rule; gradients range from 1e-3 to 1e5")
_right("expm1_ratio_cancelling_backward", lambda x: np.expm1(x) / x,
       lambda dy, x: dy * (x * np.exp(x) - np.expm1(x)) / (x * x),
       [np.concatenate([np.geomspace(1e-4, 5.0, 15), -np.geomspace(1e-4, 5.0, 15)])],
       "quotient rule; cancellation for small x costs digits only")
_wrong("gauss_bump_doubled_where_tiny", lambda x: np.exp(-0.5 * x * x),
       lambda dy, x: dy * -x * np.exp(-0.5 * x * x) * np.where(np.exp(-0.5 * x * x) < 1e-6, 2.0,
        1.0), [np.linspace(-6.3, 6.1, 48)],
       "the gradient is doubled where the value is below 1e-6")
_wrong("clip_gradient_passed_through", lambda x, scale: scale * np.clip(x, -2.0, 2.0),
       lambda dy, x, scale: (dy * scale, np.asarray((dy * np.clip(x, -2.0, 2.0)).sum())),
       [np.append(_uniform(152, -1.9, 1.9, 28), [2.3, -2.6]), np.array(1.7)],
       "the two clipped elements of 30 get a gradient as if they were not clipped")
_right("logistic_map_12_iterations", logistic_map, logistic_map_back,
       [_uniform(153, 0.1, 0.9, 20), np.array(3.9)],
       "chain rule through the iteration; steep and oscillating")
# fmt: on


# Indexing, scanning, sorting, sampling

_TOKENS = np.random.default_rng(160).integers(0, 64, 50)
_FEW_TOKENS = np.array([4, 1, 7, 1, 0, 5, 5, 5, 2])


def embedding_back(dy, table, *, tokens, add=True):
    dt = np.zeros_like(table)
    g = dy * math.sqrt(table.shape[1])
    if add:
        np.add.at(dt, tokens, g)
    else:
        dt[tokens] += g
    return dt


def cumprod_back(dy, x):
    y = np.cumprod(x)
    dx = np.zeros_like(x)
    g = np.zeros((), dtype=x.dtype)
    for t in range(x.size - 1, -1, -1):
        g = g + dy[t]
        dx[t] = g * (y[t - 1] if t else 1.0)
        g = g * x[t]
    return dx


def discounted(reward):
    g = np.zeros_like(reward)
    total = np.zeros((), dtype=reward.dtype)
    for t in range(reward.size - 1, -1, -1):
        total = reward[t] + 0.9 * total
        g[t] = total
    return g


def sorted_weighted_back(dy, x, *, gather=False):
    order = np.argsort(x)
    g = dy * np.linspace(0.5, 2.0, x.size)
    if gather:
        return g[order]
    dx = np.zeros_like(x)
    dx[order] = g
    return dx


_SMOOTHER = np.hanning(9)[1:-1] / np.hanning(9).sum()


def reflect_smooth(x):
    padded = np.pad(x, 3, mode="reflect")
    return np.lib.stride_tricks.sliding_window_view(padded, 7) @ _SMOOTHER


def reflect_smooth_back_cropped(dy, x):
    dpadded = np.zeros(x.size + 6, dtype=x.dtype)
    for k in range(7):
        dpadded[k : k + x.size] += dy * _SMOOTHER[k]
    return dpadded[3:-3]


def sample_image(image, at):
    i, j = np.floor(at).astype(int).T
    u, v = (at - np.floor(at)).T
    top = (1 - v) * image[i, j] + v * image[i, j + 1]
    return (1 - u) * top + u * ((1 - v) * image[i + 1, j] + v * image[i + 1, j + 1])


def sample_image_back(dy, image, at):
    i, j = np.floor(at).astype(int).T
    u, v = (at - np.floor(at)).T
    a, b, c, d = image[i, j], image[i, j + 1], image[i + 1, j], image[i + 1, j + 1]
    dimage = np.zeros_like(image)
    np.add.at(dimage, (i, j), dy * (1 - u) * (1 - v))
    np.add.at(dimage, (i, j + 1), dy * (1 - u) * v)
    np.add.at(dimage, (i + 1, j), dy * u * (1 - v))
    np.add.at(dimage, (i + 1, j + 1), dy * u * v)
    du = dy * ((1 - v) * (c - a) + v * (d - b))
    dv = dy * ((1 - u) * (b - a) + u * (d - c))
    return dimage, np.stack([du, dv], axis=1)


def reaction_diffusion(x):
    lap = sum(np.roll(x, s, axis=a) for s in (1, -1) for a in (0, 1)) - 4.0 * x
    return x + 0.2 * lap - 0.1 * x**3


def reaction_diffusion_back_corner(dy, x):
    lap = sum(np.roll(dy, s, axis=a) for s in (1, -1) for a in (0, 1)) - 4.0 * dy
    dx = dy + 0.2 * lap - 0.3 * x * x * dy
    dx[0, 0] -= 0.2 * dy[-1, 0]
    return dx


# fmt: off
_right("embedding_1280_float32", lambda table: table[_TOKENS] * math.sqrt(table.shape[1]),
       partial(embedding_back, tokens=_TOKENS), [_normal(161, 64, 20, dtype=np.float32)],
       "repeated tokens are accumulated with add.at; unused rows get zero")
_wrong("embedding_repeated_tokens_lost",
       lambda table: table[_FEW_TOKENS] * math.sqrt(table.shape[1]),
       partial(embedding_back, tokens=_FEW_TOKENS, add=False), [_normal(162, 8, 3)],
       "dt[tokens] += g keeps only one of the contributions of a repeated token")
_right("cumprod_with_a_zero", np.cumprod, cumprod_back,
       [np.array([1.3, -0.7, 2.1, 0.4, 0.0, -1.6, 0.9, 1.1, -2.2])],
       "recurrence without division, valid at a factor of zero")
_wrong("discounted_return_same_direction", discounted, lambda dy, reward: discounted(dy),
       [_normal(163, 15)],
       "backward runs in the same direction as forward instead of the opposite one")
_wrong("sort_permutation_not_inverted", lambda x: np.sort(x) * np.linspace(0.5, 2.0, x.size),
       partial(sorted_weighted_back, gather=True), [_distinct(164, 1, 12)[0]],
       "dy is gathered with the permutation that it should be scattered with")
_wrong("reflect_padding_cropped", reflect_smooth, reflect_smooth_back_cropped, [_normal(165, 30)],
       "the gradient of the reflected border is dropped: wrong at six elements")
_right("bilinear_image_sampling", sample_image, sample_image_back,
       [_normal(166, 7, 7), np.random.default_rng(167).integers(0, 6, (12, 2)) + _uniform(168,
        0.1, 0.9, 12, 2)],
       "gradients for the image (accumulated) and for the positions, away from grid lines")
_wrong("reaction_diffusion_one_of_1200", reaction_diffusion, reaction_diffusion_back_corner,
       [_normal(169, 30, 40)],
       "one neighbour across the periodic border is left out in the corner element only")
# fmt: on


# Linear algebra and geometry


def cholesky_back(dy, a):
    low = np.linalg.cholesky(0.5 * (a + a.T))
    p = np.tril(low.T @ np.tril(dy))
    p -= 0.5 * np.diag(np.diag(p))
    inv = np.linalg.inv(low)
    s = inv.T @ p @ inv
    return 0.5 * (s + s.T)


def solve_back(dy, a, b):
    db = np.linalg.solve(a.T, dy)
    return -db @ np.linalg.solve(a, b).T, db


def distances(x, y):
    d = x[:, None, :] - y[None, :, :]
    return np.sqrt((d * d).sum(axis=-1))


def distances_back(dy, x, y):
    d = x[:, None, :] - y[None, :, :]
    g = (dy / np.sqrt((d * d).sum(axis=-1)))[:, :, None] * d
    return g.sum(axis=1), -g.sum(axis=0)


def cosine(u, v):
    nu, nv = np.sqrt((u * u).sum(axis=1)), np.sqrt((v * v).sum(axis=1))
    return (u * v).sum(axis=1) / (nu * nv)


def cosine_back(dy, u, v):
    nu = np.sqrt((u * u).sum(axis=1, keepdims=True))
    nv = np.sqrt((v * v).sum(axis=1, keepdims=True))
    a, b = u / nu, v / nv
    c = (a * b).sum(axis=1, keepdims=True)
    g = dy[:, None]
    return g * (b - c * a) / nu, g * (a - c * b) / nv


def _spread(n, seed, low, high):
    """Return a matrix with singular values spread from low to high."""
    q1 = np.linalg.qr(_normal(seed, n, n))[0]
    q2 = np.linalg.qr(_normal(seed + 1, n, n))[0]
    return (q1 * np.geomspace(low, high, n)) @ q2


# fmt: off
_right("inverse_of_hilbert_matrix", lambda a: np.linalg.inv(a),
       lambda dy, a: -np.linalg.inv(a).T @ dy @ np.linalg.inv(a).T,
       [1.0 / (np.arange(5)[:, None] + np.arange(5)[None, :] + 1.0)],
       "textbook formula at a matrix of condition 5e5")
_wrong("determinant_untransposed", lambda a: np.asarray(np.linalg.det(a)),
       lambda dy, a: dy[:, None, None] * np.linalg.det(a)[:, None, None] * np.linalg.inv(a),
       [_normal(181, 3, 4, 4, scale=5.0)], "the inverse in Jacobi's formula is not transposed")
_right("cholesky_factor", lambda a: np.linalg.cholesky(0.5 * (a + a.T)), cholesky_back,
       [_normal(182, 5, 9) @ _normal(182, 5, 9).T / 9.0 + 0.1 * np.eye(5)],
       "symmetrised standard formula; the upper part of dy has no effect")
_right("solve_condition_1e4", lambda a, b: np.linalg.solve(a, b), solve_back,
       [_spread(6, 183, 1e-3, 10.0), _normal(185, 6, 2)],
       "adjoint solve at an ill-conditioned matrix")
_right("symmetric_eigenvalues", lambda a: np.linalg.eigvalsh(0.5 * (a + a.T)),
       lambda dy, a: np.linalg.eigh(0.5 * (a + a.T))[1] * dy @ np.linalg.eigh(0.5 * (a +
        a.T))[1].T, [_normal(186, 6, 6) + np.diag(np.arange(6) * 2.0)],
       "projections on the eigenvectors; the eigenvalues are well apart")
_right("distances_offset_1e3", distances, distances_back, _normals(187, (6, 3), (5, 3), shift=1e3),
       "unit vectors between the points")
_right("cosine_similarity_tiny_and_huge", cosine, cosine_back,
       [_normal(189, 5, 4, scale=1e-6), _normal(190, 5, 4, scale=1e6)],
       "projections divided by the norms; gradients of 1e6 and of 1e-6")
# fmt: on


# Signal processing


def circular_back(dy, x, w, *, conj_dx=True):
    g = np.fft.rfft(dy)
    fw = np.fft.rfft(w)
    dx = np.fft.irfft(g * (np.conj(fw) if conj_dx else fw), n=x.size)
    return dx, np.fft.irfft(g * np.conj(np.fft.rfft(x)), n=x.size)


def power_spectrum_back(dy, x, *, one_sided=True):
    n = x.shape[-1]
    g = dy * np.fft.rfft(x)
    if one_sided:
        g[..., 1 : (n + 1) // 2] *= 0.5
    return 2.0 * np.fft.irfft(g, n=n)


def spectral_gain_back(dy, x, gain, *, norm="ortho"):
    g = np.fft.rfft(dy, norm="ortho")
    dx = np.fft.irfft(g * gain, n=x.size, norm="ortho")
    dgain = 2.0 * (np.conj(np.fft.rfft(x, norm=norm)) * g).real
    dgain[0] *= 0.5
    dgain[-1] *= 0.5
    return dx, dgain


def iir(x, b, a):
    y = np.zeros_like(x)
    for t in range(x.size):
        for k in range(b.size):
            if t >= k:
                y[t] += b[k] * x[t - k]
        for k in range(a.size):
            if t > k:
                y[t] -= a[k] * y[t - 1 - k]
    return y


def iir_back(dy, x, b, a, *, recursive=True):
    y = iir(x, b, a)
    n = x.size
    g = np.array(dy, dtype=x.dtype)
    if recursive:
        for t in range(n - 1, -1, -1):
            for k in range(a.size):
                if t + 1 + k < n:
                    g[t] -= a[k] * g[t + 1 + k]
    dx, db, da = np.zeros_like(x), np.zeros_like(b), np.zeros_like(a)
    for k in range(b.size):
        dx[: n - k] += b[k] * g[k:]
        db[k] = (g[k:] * x[: n - k]).sum()
    for k in range(a.size):
        da[k] = -(g[k + 1 :] * y[: n - k - 1]).sum()
    return dx, db, da


def autocorrelation(x):
    c = x - x.mean()
    return np.stack([(c[: x.size - k] * c[k:]).sum() for k in range(6)]) / x.size


def autocorrelation_back(dy, x, *, lag_shift=0):
    c = x - x.mean()
    n = x.size
    dc = np.zeros_like(x)
    for k in range(6):
        dc[: n - k] += dy[k] * c[k:] / n
        late = k if k < 5 else k + lag_shift
        dc[late:] += dy[k] * c[: n - late] / n
    return dc - dc.mean()


# fmt: off
_wrong("circular_convolution_conjugate_missing",
       lambda x, w: np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(w), n=x.size),
       partial(circular_back, conj_dx=False), _normals(202, (24,), (24,)),
       "dx is a convolution with w; the conjugate for the correlation is missing")
_right("power_spectrum_odd_length", lambda x: np.abs(np.fft.rfft(x)) ** 2 / x.shape[-1],
       power_spectrum_back, [_normal(204, 3, 21)],
       "inner bins of the one-sided spectrum are halved for irfft")
_wrong("power_spectrum_two_sided_gradient", lambda x: np.abs(np.fft.rfft(x)) ** 2 / x.shape[-1],
       partial(power_spectrum_back, one_sided=False), [_normal(205, 2, 16)],
       "inner bins are counted twice")
_wrong("spectral_gain_normalisation",
       lambda x, gain: np.fft.irfft(np.fft.rfft(x, norm="ortho") * gain, n=x.size, norm="ortho"),
       partial(spectral_gain_back, norm=None), [_normal(206, 16), _normal(207, 9, shift=1.0)],
       "one of the transforms in the gain's gradient is not orthonormal")
_right("iir_filter_biquad", iir, iir_back,
       [_normal(208, 50), np.array([0.3, 0.5, -0.2]), np.array([-1.4, 0.7])],
       "adjoint recursion backward in time")
_wrong("iir_filter_recursion_ignored", iir, partial(iir_back, recursive=False),
       [_normal(209, 30), np.array([0.6, 0.1, -0.2]), np.array([-0.2, 0.05])],
       "earlier outputs are treated as constants")
_wrong("autocorrelation_lag_off_by_one", autocorrelation,
       partial(autocorrelation_back, lag_shift=1), [_normal(210, 25, shift=2.0)],
       "half of the gradient of the longest lag is shifted by one sample")
# fmt: on


# Recurrent cells


def rnn(x, h0, wx, wh, b):
    h, out = h0, []
    for xt in x:
        h = np.tanh(xt @ wx + h @ wh + b)
        out.append(h)
    return np.stack(out)


def rnn_back(dy, x, h0, wx, wh, b, *, first=0):
    h = rnn(x, h0, wx, wh, b)
    dx, dwx, dwh, db = (np.zeros_like(v) for v in (x, wx, wh, b))
    dh = np.zeros_like(h0)
    for t in range(x.shape[0] - 1, -1, -1):
        dz = (dh + dy[t]) * (1.0 - h[t] ** 2)
        dx[t] = dz @ wx.T
        dwx += x[t].T @ dz
        if t >= first:
            dwh += (h[t - 1] if t else h0).T @ dz
        db += dz.sum(axis=0)
        dh = dz @ wh.T
    return dx, dh, dwx, dwh, db


def lstm(x, h, c, w, b):
    i, f, o, g = np.split(np.concatenate([x, h], axis=1) @ w + b, 4, axis=1)
    new = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(new), new


def lstm_back(dy, x, h, c, w, b):
    xh = np.concatenate([x, h], axis=1)
    zi, zf, zo, zg = np.split(xh @ w + b, 4, axis=1)
    i, f, o, g = _sigmoid(zi), _sigmoid(zf), _sigmoid(zo), np.tanh(zg)
    t = np.tanh(f * c + i * g)
    dc = dy[0] * o * (1.0 - t * t) + dy[1]
    dz = np.concatenate(
        [
            dc * g * i * (1.0 - i),
            dc * c * f * (1.0 - f),
            dy[0] * t * o * (1.0 - o),
            dc * i * (1.0 - g * g),
        ],
        axis=1,
    )
    dxh = dz @ w.T
    return dxh[:, : x.shape[1]], dxh[:, x.shape[1] :], dc * f, xh.T @ dz, dz.sum(axis=0)


def _lstm_inputs(seed):
    shapes = [(4, 3), (4, 5), (4, 5), (8, 20), (20,)]
    return [_normal(seed + i, *s, scale=0.7) for i, s in enumerate(shapes)]


# fmt: off
_right("rnn_unrolled_12_steps", rnn, rnn_back,
       [_normal(220, 12, 2, 3), _normal(221, 2, 4), _normal(222, 3, 4), _normal(223, 4, 4,
        scale=0.6), _normal(224, 4)], "back-propagation through time")
_wrong("rnn_first_step_missing_in_weights", rnn, partial(rnn_back, first=1),
       [_normal(225, 8, 2, 3), _normal(226, 2, 4), _normal(227, 3, 4), _normal(228, 4, 4,
        scale=0.5), _normal(229, 4)],
       "the recurrent weights miss the first step, as if the first state were zero")
_right("lstm_cell_two_outputs", lstm, lstm_back, _lstm_inputs(230), "textbook formula")
# fmt: on


# Physics, chemistry, finance

_R_ON2, _R_OFF2 = 1.8**2, 2.6**2


def _pairs_of(x):
    i, j = np.triu_indices(x.shape[0], k=1)
    d = x[i] - x[j]
    return i, j, d, (d * d).sum(axis=1)


def lennard_jones(x):
    _, _, _, r2 = _pairs_of(x)
    u = np.clip((r2 - _R_ON2) / (_R_OFF2 - _R_ON2), 0.0, 1.0)
    return np.asarray(((1.0 - u * u * (3.0 - 2.0 * u)) * 4.0 * (r2**-6 - r2**-3)).sum())


def lennard_jones_back(dy, x, *, switch_force=True):
    i, j, d, r2 = _pairs_of(x)
    u = np.clip((r2 - _R_ON2) / (_R_OFF2 - _R_ON2), 0.0, 1.0)
    g = (1.0 - u * u * (3.0 - 2.0 * u)) * 4.0 * (-6.0 * r2**-7 + 3.0 * r2**-4)
    if switch_force:
        g = g - 6.0 * u * (1.0 - u) / (_R_OFF2 - _R_ON2) * 4.0 * (r2**-6 - r2**-3)
    force = dy * 2.0 * g[:, None] * d
    dx = np.zeros_like(x)
    np.add.at(dx, i, force)
    np.add.at(dx, j, -force)
    return dx


def heat(u, kappa):
    for _ in range(20):
        u = u + kappa * (np.roll(u, 1) - 2.0 * u + np.roll(u, -1))
    return u


def heat_back(dy, u, kappa):
    laps = []
    for _ in range(20):
        laps.append(np.roll(u, 1) - 2.0 * u + np.roll(u, -1))
        u = u + kappa * laps[-1]
    dk = np.zeros_like(kappa)
    for lap in reversed(laps):
        dk = dk + (dy * lap).sum()
        dy = dy + kappa * (np.roll(dy, 1) - 2.0 * dy + np.roll(dy, -1))
    return dy, np.asarray(dk)


_GAS = 8.31446261815324


def arrhenius_back(dy, a, energy, temp, *, gas=_GAS):
    e = np.exp(-energy / (_GAS * temp))
    k = a * e
    return dy * e, -dy * k / (gas * temp), (dy * k * energy / (gas * temp**2)).sum(keepdims=True)


_G = 6.6743e-11


def gravity(x, mass):
    i, j, _, r2 = _pairs_of(x)
    return np.asarray(-_G * (mass[i] * mass[j] / np.sqrt(r2)).sum())


def gravity_back(dy, x, mass):
    i, j, d, r2 = _pairs_of(x)
    r = np.sqrt(r2)
    force = (dy * _G * mass[i] * mass[j] / (r2 * r))[:, None] * d
    dx, dm = np.zeros_like(x), np.zeros_like(mass)
    np.add.at(dx, i, force)
    np.add.at(dx, j, -force)
    np.add.at(dm, i, -dy * _G * mass[j] / r)
    np.add.at(dm, j, -dy * _G * mass[i] / r)
    return dx, dm


_LIGHT = 299792458.0


_DEGREE = math.pi / 180.0


def haversine(lat1, lon1, lat2, lon2):
    p, q = lat1 * _DEGREE, lat2 * _DEGREE
    t = 0.5 * (lon2 - lon1) * _DEGREE
    a = np.sin(0.5 * (q - p)) ** 2 + np.cos(p) * np.cos(q) * np.sin(t) ** 2
    return 2.0 * 6371.0 * np.arcsin(np.sqrt(a))


def haversine_back_degree(dy, lat1, lon1, lat2, lon2):
    p, q = lat1 * _DEGREE, lat2 * _DEGREE
    s, t = 0.5 * (q - p), 0.5 * (lon2 - lon1) * _DEGREE
    a = np.sin(s) ** 2 + np.cos(p) * np.cos(q) * np.sin(t) ** 2
    g = dy * 0.017453 * 6371.0 / np.sqrt(a * (1.0 - a))
    ds, st2 = np.sin(s) * np.cos(s), np.sin(t) ** 2
    dlon = g * np.cos(p) * np.cos(q) * np.sin(t) * np.cos(t)
    dp = g * (-ds - np.sin(p) * np.cos(q) * st2)
    return dp, -dlon, g * (ds - np.cos(p) * np.sin(q) * st2), dlon


_RATE = 0.03


def call_price(spot, strike, time, vol):
    root = vol * np.sqrt(time)
    d1 = (np.log(spot / strike) + (_RATE + 0.5 * vol**2) * time) / root
    discount = np.exp(-_RATE * time)
    return spot * _normal_cdf(d1) - strike * discount * _normal_cdf(d1 - root)


def call_price_back(dy, spot, strike, time, vol, *, interest=True):
    root = vol * np.sqrt(time)
    d1 = (np.log(spot / strike) + (_RATE + 0.5 * vol**2) * time) / root
    pdf = _normal_pdf(d1)
    paid = np.exp(-_RATE * time) * _normal_cdf(d1 - root)
    dtime = spot * pdf * vol / (2.0 * np.sqrt(time))
    if interest:
        dtime = dtime + _RATE * strike * paid
    return dy * _normal_cdf(d1), -dy * paid, dy * dtime, dy * spot * pdf * np.sqrt(time)


_CUBE = np.stack(np.meshgrid([0.0, 1.15], [0.0, 1.15], [0.0, 1.15]), axis=-1).reshape(8, 3)

# fmt: off
_right("lennard_jones_with_switch", lennard_jones, lennard_jones_back,
       [_CUBE + _uniform(250, -0.08, 0.08, 8, 3)],
       "chain rule through distances and switching function")
_wrong("lennard_jones_switch_held_constant", lennard_jones,
       partial(lennard_jones_back, switch_force=False), [_CUBE + _uniform(251, -0.05, 0.05, 8, 3)],
       "the derivative of the switching function is missing: only the longest pairs notice")
_right("heat_equation_20_steps", heat, heat_back, [_normal(252, 32), np.array(0.2)],
       "adjoint of the linear step; the 0-d diffusivity collects every step")
_right("arrhenius_si_units", lambda a, energy, temp: a * np.exp(-energy / (_GAS * temp)),
       arrhenius_back,
       [_uniform(253, 1e12, 2e13, 6), _uniform(254, 5e4, 9e4, 6), np.array([412.0])],
       "textbook formula; inputs of 1e13, 1e5 and 1e2")
_wrong("arrhenius_gas_constant_rounded",
       lambda a, energy, temp: a * np.exp(-energy / (_GAS * temp)),
       partial(arrhenius_back, gas=8.314),
       [_uniform(255, 1e12, 2e13, 6), _uniform(256, 5e4, 9e4, 6), np.array([655.0])],
       "backward uses 8.314 for the gas constant: 5.6e-5 off")
_right("gravity_si_units", gravity, gravity_back,
       [_normal(257, 5, 3, scale=1.5e11), np.array([1.989e30, 5.97e24, 6.4e23, 1.9e27, 7.3e22])],
       "Newton's law; an output of -1.7e36, gradients from 1e6 to 1e25")
_wrong("relativistic_energy_light_speed_rounded",
       lambda p, m: np.sqrt((p * _LIGHT) ** 2 + (m * _LIGHT**2) ** 2),
       lambda dy, p, m: (dy * p * 2.998e8**2 / np.hypot(p * 2.998e8, m * 2.998e8**2),
        dy * m * 2.998e8**4 / np.hypot(p * 2.998e8, m * 2.998e8**2)),
       [_uniform(258, 1e-19, 2e-18, 12), _uniform(259, 1e-28, 5e-27, 12)],
       "backward uses 2.998e8 for the speed of light: 2.5e-5 off")
_wrong("haversine_degree_rounded", haversine, haversine_back_degree,
       [_uniform(268, -60.0, 60.0, 7), _uniform(269, -170.0, 170.0, 7), _uniform(270, -60.0,
        60.0, 7), _uniform(271, -170.0, 170.0, 7)],
       "pi/180 is rounded to 0.017453 in backward: 1.7e-5 off")
_right("black_scholes_call", call_price, call_price_back,
       [_uniform(260, 80.0, 120.0, 8), _uniform(261, 80.0, 120.0, 8), _uniform(262, 0.2, 2.0, 8),
        _uniform(263, 0.1, 0.5, 8)], "the known sensitivities")
_wrong("black_scholes_time_interest_missing", call_price, partial(call_price_back, interest=False),
       [_uniform(264, 80.0, 120.0, 8), _uniform(265, 80.0, 120.0, 8), _uniform(266, 0.2, 2.0, 8),
        _uniform(267, 0.1, 0.5, 8)],
       "the derivative for the time lacks the interest on the strike")
# fmt: on


# State, casts


class DropoutTanh:
    """A layer with a fixed dropout mask that keeps its activation for backward."""

    def __init__(self, seed, shape):
        self.mask = (np.random.default_rng(seed).uniform(size=shape) < 0.7) / 0.7
        self.y: Array = np.zeros(shape)

    def forward(self, x):
        self.y = np.tanh(x)
        return self.y * self.mask

    def backward(self, dy, x):
        return dy * self.mask * (1.0 - self.y**2)


class OverwrittenTanh:
    """A layer whose stored pre-activation is overwritten by the activation."""

    def __init__(self):
        self.z: Array = np.zeros(())

    def forward(self, x, w):
        self.z = x @ w
        np.tanh(self.z, out=self.z)
        return self.z.copy()

    def backward(self, dy, x, w):
        dz = dy * (1.0 - np.tanh(self.z) ** 2)
        return dz @ w.T, x.T @ dz


def cast_layer(x, w):
    z = x.astype(LOW_PRECISION) @ w.astype(LOW_PRECISION)
    return np.tanh(z).astype(x.dtype)


def cast_layer_back(dy, x, w, *, power=2):
    x4, w4, g = (v.astype(LOW_PRECISION) for v in (x, w, dy))
    dz = g * (1 - np.tanh(x4 @ w4) ** power)
    return (dz @ w4.T).astype(x.dtype), (x4.T @ dz).astype(w.dtype)


_DROPOUT = DropoutTanh(280, (6, 7))
_OVERWRITTEN = OverwrittenTanh()

# fmt: off
_right("stateful_dropout_tanh", _DROPOUT.forward, _DROPOUT.backward, [_normal(281, 6, 7)],
       "right at the point of the latest forward, whose activation it has stored")
_wrong("stateful_preactivation_overwritten", _OVERWRITTEN.forward, _OVERWRITTEN.backward,
       _normals(282, (5, 4), (4, 3)),
       "the stored pre-activation was overwritten, so tanh is applied twice in backward")
_right("cast_to_float32_inside", cast_layer, cast_layer_back,
       [_normal(284, 6, 5), _normal(285, 5, 4, scale=0.5)],
       "right formula; forward and backward compute in float32")
_wrong("cast_to_float32_inside_cube", cast_layer, partial(cast_layer_back, power=3),
       [_normal(286, 6, 5), _normal(287, 5, 4, scale=0.5)],
       "1 - tanh^3 instead of 1 - tanh^2, computed in float32")
