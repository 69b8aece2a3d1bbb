"""Kernels of the formulas that ship, and planted bugs in them.

A kernel has a forward and a backward pass. A bug replaces one of them, and has the ids of its
cause; none if no cause is to be named.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import truenorm.verify as tv
from truenorm.verify.collecting import collect
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import grade_records
from truenorm.verify.operation import MODEL_INPUT, Case
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.types import Array

MOST_ELEMENTS = 4200
MANY_CALLS = ("batch-sizes", "large", "repeated", "row-counts", "row-limit")
Pass = Callable[..., Any]
TILE = "the last, partial block of 64 columns is left out"


def report_of(subject: Subject, suite: Sequence[Case] = ()) -> Report:
    """Return the report of a subject, by default on all cases with few elements and calls."""
    suite = suite or [
        case
        for case in tv.cases("float32", operation=subject.operation)
        if case.first.size <= MOST_ELEMENTS and case.family not in MANY_CALLS and not case.compared
    ]
    records = collect(runner_for(subject), suite)
    return grade_records(subject, suite, records, SubjectSpec(), domain=MODEL_INPUT, strict=False)


class Bug(NamedTuple):
    """A pass with a bug, and the ids of its cause; a gradient may name it otherwise."""

    forward: Pass | None
    backward: Pass | None
    causes: tuple[str, ...] = ()


def along(x: Array) -> Any:
    return np.sum(x, axis=-1, keepdims=True)


def rolled(x: Array) -> Array:
    return np.roll(x, 1, axis=0)


def whole_tiles(x: Array, tile: int = 64) -> Array:
    """Return zeros in place of the elements behind the last tile of 64."""
    size = x.shape[-1]
    return np.where(np.arange(size) < (size - size % tile or size), x, 0)


def of_whole_tiles(e: Array) -> Any:
    return along(whole_tiles(e))


def of_the_row_before(e: Array) -> Any:
    return rolled(along(e))


def averaged(e: Array) -> Any:
    return along(e) / e.dtype.type(e.shape[-1])


def exponentials(x: Array) -> tuple[Array, Any]:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e, along(e)


# Softmax.


def softmax(x: Array, shift: Pass = lambda x: x, total: Pass = along) -> Any:
    e = np.exp(shift(x) - x.max(axis=-1, keepdims=True))
    y = e / total(e)
    return y, y


def softmax_backward(dy: Array, y: Array, total: Pass = along) -> Any:
    return y * (dy - total(dy * y))


def naive_softmax(x: Array) -> Any:
    y = np.exp(x) / along(np.exp(x))
    return y, y


def softmax_of_base_2(x: Array) -> Any:
    e = np.exp2(x - x.max(axis=-1, keepdims=True))
    return e / along(e), e / along(e)


SOFTMAX = {
    "the largest is not subtracted": Bug(naive_softmax, None,
        ("exp-unshifted(top)",)),
    "a mean, not a sum": Bug(partial(softmax, total=averaged), None, ("averaged(s)",)),
    "the sum of another row": Bug(partial(softmax, total=of_the_row_before), None,
        ("of-before(s, row)",)),
    "a partial tile": Bug(partial(softmax, total=of_whole_tiles), None,
        ("no-partial-block(s, column, 64)",)),
    "base 2": Bug(softmax_of_base_2, None, ("base-2(e)",)),
    "no sum in backward": Bug(None, lambda dy, y: dy * y, ("no-term(the gradient of s)",)),
    "dy is not multiplied": Bug(None, lambda dy, y: dy - y * along(dy * y)),
}  # fmt: skip

# Softmax with a mask.


def masked_softmax(x: Array, mask: Array) -> Any:
    kept = np.where(mask > 0, x, -np.inf).astype(x.dtype)
    e = np.where(mask > 0, np.exp(kept - kept.max(axis=-1, keepdims=True)), 0).astype(x.dtype)
    y = e / along(e)
    return y, y


def with_mask(change: Pass) -> Pass:
    """Return the kernel with another mask."""
    return lambda x, mask: masked_softmax(x, change(mask))


def masked_afterwards(x: Array, mask: Array) -> Any:
    e, s = exponentials(x)
    y = np.where(mask > 0, e / s, 0).astype(x.dtype)
    return y, y


def largest_of_all(x: Array, mask: Array) -> Any:
    """Divide 0 by 0 where a masked element is far above all others."""
    e = np.where(mask > 0, exponentials(x)[0], 0).astype(x.dtype)
    return e / along(e), e / along(e)


MASKED_SOFTMAX = {
    "the mask is reversed": Bug(with_mask(np.negative), None, ("reversed(mask > 0)",)),
    "the mask of another row": Bug(with_mask(rolled), None, ("of-before(mask, row)",)),
    "no mask": Bug(with_mask(lambda mask: np.ones_like(mask)), None, ("always-true(mask > 0)",)),
    "masked after the sum": Bug(masked_afterwards, None),
    "the largest of all elements": Bug(largest_of_all, None),
    "no sum in backward": Bug(None, lambda dy, y: dy * y, ("no-term(the gradient of s)",)),
}

# Log-softmax.


def log_softmax(x: Array, log: Pass = np.log, total: Pass = along) -> Any:
    c = x - x.max(axis=-1, keepdims=True)
    y = c - log(total(np.exp(c)))
    return y, y


def log_softmax_backward(dy: Array, y: Array) -> Any:
    return dy - np.exp(y) * along(dy)


def log_of_softmax(x: Array) -> Any:
    y = np.log(softmax(x)[0])
    return y, y


LOG_SOFTMAX = {
    "the logarithm of a softmax": Bug(log_of_softmax, None),
    "base 2": Bug(partial(log_softmax, log=np.log2), None, ("base-2(log(s))",)),
    "log1p": Bug(partial(log_softmax, log=np.log1p), None, ("log-of-1-plus(log(s))",)),
    "a partial tile": Bug(
        partial(log_softmax, total=of_whole_tiles), None, ("no-partial-block(s, column, 64)",)
    ),
    "the sum of another row": Bug(
        partial(log_softmax, total=of_the_row_before), None, ("of-before(s, row)",)
    ),
    "no sum in backward": Bug(None, lambda dy, _: dy, ("no-term((the gradient of s)*exp(c))",)),
}

# Cross-entropy: one loss for each row.


def cross_entropy(x: Array, label: Array, total: Pass = along, shift: int = 0) -> Any:
    top = x.max(axis=-1, keepdims=True)
    place = (label[:, None] + shift) % x.shape[-1]
    s = total(np.exp(x - top))
    loss = np.log(s) - (np.take_along_axis(x, place, 1) - top)
    return loss[:, 0], (x, label)


def cross_entropy_backward(dy: Array, saved: Any, at_label: float = 1.0) -> Any:
    x, label = saved
    e, s = exponentials(x)
    y = e / s
    place = label[:, None]
    np.put_along_axis(y, place, np.take_along_axis(y, place, 1) - x.dtype.type(at_label), 1)
    return y * dy[:, None]


def naive_cross_entropy(x: Array, label: Array) -> Any:
    taken = np.take_along_axis(x, label[:, None], 1)
    return (np.log(along(np.exp(x))) - taken)[:, 0], (x, label)


CROSS_ENTROPY = {
    "the largest is not subtracted": Bug(naive_cross_entropy, None,
        ("exp-unshifted(top)",)),
    "the next label": Bug(partial(cross_entropy, shift=1), None,
        ("element-after(at_label)",)),
    "a partial tile": Bug(partial(cross_entropy, total=of_whole_tiles), None,
        ("no-partial-block(s, column, 64)",)),
    "the sum of another row": Bug(partial(cross_entropy, total=of_the_row_before), None,
        ("of-before(s, row)",)),
    "no one at the label": Bug(None, partial(cross_entropy_backward, at_label=0.0),
        ("no-term(the gradient of at_label)",)),
    "dy is left out": Bug(None, lambda dy, saved: cross_entropy_backward(np.ones_like(dy), saved),
        ("gradient-of-1(dy)",)),
}  # fmt: skip

# L2 norm.


def l2_norm(x: Array, eps: float, total: Pass = along, outside: bool = False) -> Any:
    eps = x.dtype.type(eps)
    w = total(x * x)
    r = 1 / (np.sqrt(w) + eps) if outside else 1 / np.sqrt(w + eps)
    return x * r, (x, r)


def l2_norm_backward(dy: Array, saved: Any, power: int = 3) -> Any:
    x, r = saved
    return r * dy - x * (r**power * along(dy * x))


L2_NORM = {
    "a mean, not a sum": Bug(partial(l2_norm, total=averaged), None, ("averaged(w)",)),
    "eps is added to the root": Bug(partial(l2_norm, outside=True), None,
        ("added-to-root(eps)",)),
    "eps is left out": Bug(lambda x, _: l2_norm(x, 0.0), None, ("no-term(eps)",)),
    "a partial tile": Bug(partial(l2_norm, total=of_whole_tiles), None,
        ("no-partial-block(w, column, 64)",)),
    "the sum of another row": Bug(partial(l2_norm, total=of_the_row_before), None,
        ("of-before(r, row)",)),
    "the root is detached": Bug(None, lambda dy, saved: dy * saved[1],
        ("no-term(2*((the gradient of w)*x))",)),
    "r squared": Bug(None, partial(l2_norm_backward, power=2),
        ("no-factor(r, (the gradient of r)*r)",)),
}  # fmt: skip

# RMSNorm and RoPE.


def rotated(n: Array, sign: float = 1.0) -> Array:
    half = n.shape[-1] // 2
    return np.asarray(np.concatenate([-n[..., half:], n[..., :half]], axis=-1) * sign, n.dtype)


def neighbours(n: Array) -> Array:
    pairs = n.reshape(*n.shape[:-1], -1, 2)
    return np.stack([-pairs[..., 1], pairs[..., 0]], axis=-1).reshape(n.shape)


def rope(
    x: Array, cos: Array, sin: Array, gamma: Array, eps: float, rotate: Pass = rotated
) -> Any:
    r = 1 / np.sqrt(along(x * x) / x.dtype.type(x.shape[-1]) + x.dtype.type(eps))
    n = x * r * gamma
    return n * cos + rotate(n) * sin, (x, cos, sin, gamma, r)


def rope_backward(dy: Array, saved: Any, sign: float = -1.0, detached: bool = False) -> Any:
    x, cos, sin, gamma, r = saved
    dn = dy * cos + rotated(dy * sin, sign)
    g, xhat = dn * gamma, x * r
    along_x = along(g * xhat) / x.dtype.type(x.shape[-1])
    dx = r * g if detached else r * (g - xhat * along_x)
    return dx, (dn * xhat).sum(axis=0)


def exchanged(x: Array, cos: Array, sin: Array, gamma: Array, eps: float) -> Any:
    return rope(x, sin, cos, gamma, eps)


RMS_NORM_ROPE = {
    "neighbours are rotated": Bug(partial(rope, rotate=neighbours), None,
        ("neighbours(rotate_half(n))",)),
    "the other sign": Bug(partial(rope, rotate=partial(rotated, sign=-1.0)), None,
        ("rotation-negated(rotate_half(n))",)),
    "cos and sin are exchanged": Bug(exchanged, None, ("exchanged(cos, sin)",)),
    "gamma is left out": Bug(lambda x, cos, sin, gamma,
        eps: rope(x, cos, sin, np.ones_like(gamma), eps), None,
        ("no-factor(gamma, n)", "no-factor(gamma, (the gradient of n)*gamma)")),
    "rotated back the wrong way": Bug(None, partial(rope_backward, sign=1.0),
        ("rotation-negated(rotate_half(dy*sin))",)),
    "the root is detached": Bug(None, partial(rope_backward, detached=True),
        ("no-term(2*((the gradient of w)*x))",)),
}  # fmt: skip

# SwiGLU.


def sigma(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def swiglu(x: Array, z: Array) -> Any:
    return x * sigma(x) * z, (x, z)


def swiglu_backward(dy: Array, saved: Any) -> Any:
    x, z = saved
    s = sigma(x)
    return dy * z * (s * (1 + x * (1 - s))), dy * (x * s)


def _slope_without_x(dy: Array, saved: Any) -> Any:
    x, z = saved
    return dy * z * sigma(x), dy * (x * sigma(x))


def _dz_of_x(dy: Array, saved: Any) -> Any:
    return swiglu_backward(dy, saved)[0], dy * saved[0]


SWIGLU = {
    "x and z are exchanged": Bug(lambda x, z: swiglu(z, x), None, ("exchanged(x, z)",)),
    "a sigmoid, not a silu": Bug(lambda x, z: (sigma(x) * z, (x, z)), None, ("no-factor(x, s)",)),
    "a tanh": Bug(lambda x, z: (x * np.tanh(x) * z, (x, z)), None, ("tanh(sigma(x))",)),
    "z is left out": Bug(lambda x, z: (x * sigma(x), (x, z)), None, ("no-factor(z, y)",)),
    "z of another row": Bug(lambda x, z: swiglu(x, rolled(z)), None, ("of-before(z, row)",)),
    "the slope lacks a term": Bug(
        None, _slope_without_x, ("no-term(((the gradient of s)*x)*(sigma(x)*(1 - sigma(x))))",)
    ),
    "dz lacks the sigmoid": Bug(None, _dz_of_x, ("no-factor(sigma(x), s)",)),
}

# GELU.

ERF = np.vectorize(__import__("math").erf, otypes=[float])


def gelu(x: Array, of: Pass = lambda x: ERF(x / np.sqrt(2))) -> Any:
    wide = x.astype(float)
    return (0.5 * wide * (1 + of(wide))).astype(x.dtype), x


def gelu_backward(dy: Array, x: Array, density: float = 1.0) -> Any:
    wide = x.astype(float)
    slope = 0.5 * (1 + ERF(wide / np.sqrt(2)))
    slope = slope + density * wide * np.exp(-wide * wide / 2) / np.sqrt(2 * np.pi)
    return (dy * slope).astype(x.dtype)


def by_tanh(x: Array) -> Any:
    return np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


GELU = {
    "a tanh for erf": Bug(partial(gelu, of=by_tanh), None, ("erf-by-tanh(erf(x*1/sqrt(2)))",)),
    "a sigmoid for erf": Bug(
        partial(gelu, of=lambda x: np.tanh(0.851 * x)), None, ("erf-by-sigmoid(erf(x*1/sqrt(2)))",)
    ),
    "the root of 2 is left out": Bug(
        partial(gelu, of=ERF), None, ("no-factor(1/sqrt(2), x*1/sqrt(2))",)
    ),
    "twice as large": Bug(lambda x: (2 * gelu(x)[0], x), None, ("no-factor(0.5, half)",)),
    "erf is subtracted": Bug(
        partial(gelu, of=lambda x: -ERF(x / np.sqrt(2))), None, ("term-negated(erf(x*1/sqrt(2)))",)
    ),
    "the density is left out": Bug(
        None,
        partial(gelu_backward, density=0.0),
        ("no-term(dy*half*erf_slope(x*1/sqrt(2))*1/sqrt(2))",),
    ),
    "the density counts twice": Bug(
        None, partial(gelu_backward, density=2.0), ("no-factor(0.5, half)",)
    ),
}

KERNELS: dict[str, tuple[Pass, Pass]] = {
    "softmax": (softmax, softmax_backward),
    "masked_softmax": (masked_softmax, softmax_backward),
    "log_softmax": (log_softmax, log_softmax_backward),
    "cross_entropy": (cross_entropy, cross_entropy_backward),
    "l2_norm": (l2_norm, l2_norm_backward),
    "rms_norm_rope": (rope, rope_backward),
    "swiglu": (swiglu, swiglu_backward),
    "gelu": (gelu, gelu_backward),
}
BUGS = {
    "softmax": SOFTMAX,
    "masked_softmax": MASKED_SOFTMAX,
    "log_softmax": LOG_SOFTMAX,
    "cross_entropy": CROSS_ENTROPY,
    "l2_norm": L2_NORM,
    "rms_norm_rope": RMS_NORM_ROPE,
    "swiglu": SWIGLU,
    "gelu": GELU,
}
