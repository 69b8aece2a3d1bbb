"""Planted bugs that take the process with them: to be judged in a process of their own.

This file is given to the judge by its path, so it imports nothing of the tests.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from truenorm import textbook
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array


def _backward(dy: Array, saved: textbook.Saved) -> tuple[Array, Array, Array]:
    with np.errstate(all="ignore"):
        dx, dgamma, dbeta = textbook.backward(dy.astype(np.float64), saved)
        return dx.astype(dy.dtype), dgamma.astype(dy.dtype), dbeta.astype(dy.dtype)


def _after(accident: Callable[[Array], None], name: str, seconds: float = 60.0) -> Subject:
    """Return the textbook form in float64, right for float32 data, if the accident spares it."""

    def forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
        accident(x)
        with np.errstate(all="ignore"):
            x64, gamma64, beta64 = (each.astype(np.float64) for each in (x, gamma, beta))
            y, saved = textbook.forward(x64, gamma64, beta64, eps)
            return y.astype(x.dtype), saved

    return Subject(forward, _backward, name=name, dtypes=["float32"], seconds=seconds)


def _has_a_constant_row(x: Array) -> bool:
    return bool((np.ptp(x, axis=-1) == 0).any())


def _abort(x: Array) -> None:
    if _has_a_constant_row(x):
        os.abort()


def _exit(x: Array) -> None:
    if _has_a_constant_row(x):
        os._exit(0)


def _hang(x: Array) -> None:
    while x.shape[-1] == 1:
        time.sleep(1)


aborts = _after(_abort, "aborts on a constant row")
leaves = _after(_exit, "leaves with exit code 0 on a constant row")
hangs = _after(_hang, "never returns at D = 1", seconds=3)
