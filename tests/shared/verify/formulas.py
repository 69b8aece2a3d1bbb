"""Formulas of operations that are not norms, and kernels of them with planted bugs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.formulas import exp, largest, total
from truenorm.verify.types import Array


def softmax(x: Any) -> Any:
    top = largest(x)
    e = exp(x - top)
    s = total(e)
    return e / s


class Bug(NamedTuple):
    """A kernel with a bug, and words that its cause must have; none if it has no cause."""

    forward: Callable[..., Any]
    backward: Callable[..., Any] | None
    cause: str = ""


def _exponentials(x: Array) -> tuple[Array, Array]:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e, e.sum(axis=-1, keepdims=True)


def softmax_forward(x: Array) -> tuple[Array, Array]:
    e, s = _exponentials(x)
    y = e / s
    return y, y


def softmax_backward(dy: Array, y: Array) -> Array:
    return np.asarray(y * (dy - (dy * y).sum(axis=-1, keepdims=True)))


def _naive(x: Array) -> Array:
    e = np.exp(x)
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _by_mean(x: Array) -> Array:
    e, _ = _exponentials(x)
    return np.asarray(e / e.mean(axis=-1, keepdims=True))


def _of_neighbour(x: Array) -> Array:
    e, s = _exponentials(x)
    return np.asarray(e / np.roll(s, 1, axis=0))


def _without_tail(x: Array) -> Array:
    e, _ = _exponentials(x)
    whole = x.shape[-1] - x.shape[-1] % 64 or x.shape[-1]
    return np.asarray(e / e[..., :whole].sum(axis=-1, keepdims=True))


SOFTMAX_BUGS = {
    "the largest element is not subtracted": Bug(_naive, None),
    "a mean, not a sum": Bug(_by_mean, None, "s is averaged, not summed"),
    "the sum of another row": Bug(_of_neighbour, None, "s is that of the previous row"),
    "a partial tile": Bug(_without_tail, None, "s is without the last n % 64 elements"),
    "no sum in backward": Bug(
        softmax_forward, lambda dy, y: dy * y, "the gradient of s is left out"
    ),
    "dy is not multiplied": Bug(
        softmax_forward, lambda dy, y: dy - y * (dy * y).sum(axis=-1, keepdims=True)
    ),
}
