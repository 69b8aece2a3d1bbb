"""Norms that are right, to be spoilt: in a wider type, deviations first, rounded once.

A wrong kernel of this folder is one of these with a mistake, so that the mistake is the only one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv
from shared.verify.honest import quiet

Array = NDArray[Any]
Forward = Callable[..., Any]
Backward = Callable[..., Any]

SUBJECTS: dict[str, tv.Subject] = {}


class Saved(NamedTuple):
    """What forward leaves to backward, wide; `like` has the type of the results."""

    like: Array
    x: Array
    mean: Array
    rstd: Array
    gamma: Array

    @property
    def xhat(self) -> Array:
        return (self.x - self.mean) * self.rstd


def widen(values: Array) -> Array:
    """Return values in a type with room for their squares and their sums."""
    return values.astype(np.longdouble if values.dtype == np.float64 else np.float64)


def narrow(values: Array, like: Array) -> Array:
    """Round to the type of `like`; what is too large for it becomes infinite."""
    with np.errstate(all="ignore"):
        return values.astype(like.dtype)


def mean_of(values: Array) -> Array:
    with np.errstate(all="ignore"):
        column: Array = values.sum(axis=-1, keepdims=True) / values.shape[-1]
        return column


def rstd_of(deviations: Array, eps: float) -> Array:
    """Return 1/sqrt(mean square + eps) of each row, as a column."""
    with np.errstate(all="ignore"):
        inverse: Array = 1 / np.sqrt(mean_of(deviations * deviations) + eps)
        return inverse


def centred(x: Array, gamma: Array, eps: float) -> Saved:
    """Return the statistics of layer norm: x less its mean already, so that no digit is lost."""
    rows = widen(x)
    with np.errstate(all="ignore"):
        rows = rows - mean_of(rows)
        mean = mean_of(rows)
        return Saved(x, rows, mean, rstd_of(rows - mean, eps), widen(gamma))


def plain(x: Array, gamma: Array, eps: float) -> Saved:
    rows = widen(x)
    rstd = rstd_of(rows, eps)
    return Saved(x, rows, np.zeros_like(rstd), rstd, widen(gamma))


def layer_forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Saved]:
    with np.errstate(all="ignore"):
        saved = centred(x, gamma, eps)
        return narrow(saved.xhat * saved.gamma + widen(beta), x), saved


def rms_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Saved]:
    with np.errstate(all="ignore"):
        saved = plain(x, gamma, eps)
        return narrow(saved.xhat * saved.gamma, x), saved


def added(x: Array, residual: Array) -> Array:
    with np.errstate(all="ignore"):
        return narrow(widen(x) + widen(residual), x)


def add_layer_forward(
    x: Array, residual: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Array, Array, Saved]:
    total = added(x, residual)
    y, saved = layer_forward(total, gamma, beta, eps)
    return y, total, saved


def add_rms_forward(
    x: Array, residual: Array, gamma: Array, eps: float
) -> tuple[Array, Array, Saved]:
    total = added(x, residual)
    y, saved = rms_forward(total, gamma, eps)
    return y, total, saved


def layer_slopes(dy: Array, saved: Saved) -> Array:
    g = widen(dy) * saved.gamma
    xhat = saved.xhat
    dx: Array = saved.rstd * (g - mean_of(g) - xhat * mean_of(g * xhat))
    return dx


def rms_slopes(dy: Array, saved: Saved) -> Array:
    g = widen(dy) * saved.gamma
    xhat = saved.xhat
    dx: Array = saved.rstd * (g - xhat * mean_of(g * xhat))
    return dx


def all_narrow(saved: Saved, *results: Array) -> tuple[Array, ...]:
    return tuple(narrow(each, saved.like) for each in results)


def parameters(dy: Array, saved: Saved) -> tuple[Array, Array]:
    slopes = widen(dy)
    return (slopes * saved.xhat).sum(axis=0), slopes.sum(axis=0)


def kernel(
    name: str,
    forward: Forward,
    backward: Backward | None = None,
    *,
    dtypes: tuple[str, ...] = ("float32",),
    operation: Any = tv.LAYER_NORM,
) -> None:
    """Keep a wrong kernel, whose functions need not silence NumPy."""
    # pytest may import a module twice, by its file and by its name; then it is the same kernel.
    if name in SUBJECTS and SUBJECTS[name].operation is not operation:
        raise ValueError(f"there are two kernels {name}")
    SUBJECTS[name] = tv.Subject(
        quiet(forward),
        None if backward is None else quiet(backward),
        name=name,
        dtypes=dtypes,
        operation=operation,
    )
