"""Changes of the steps of a norm: hypotheses are made of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.formulas.rounding import rounded
from truenorm.verify.norms.steps import Changes, Step, Steps
from truenorm.verify.types import Float64s

Table = dict[Cause, Changes]
"""By cause: the steps that a hypothesis replaces."""
NARROW = ("float16", "bfloat16")
R = "1/sqrt(... + eps)"


def changed(change: Callable[[Steps, Float64s], Any], *steps: str) -> Changes:
    """Replace steps by a function of their right results."""
    return {step: partial(_change, change, step) for step in steps}


def _change(change: Callable[[Steps, Float64s], Any], step: str, at: Steps) -> Float64s:
    return np.asarray(change(at, at.right(step)))


def rounded_steps(kind: str, *steps: str) -> Changes:
    """Round steps to a type."""
    return changed(lambda _, right: rounded(right, kind), *steps)


def scaled(factor: float, *steps: str) -> Changes:
    """Multiply steps by a factor."""
    return changed(lambda _, right: factor * right, *steps)


def zero(*steps: str) -> Changes:
    """Replace steps by zeros, also in rows where they are not finite."""
    return dict.fromkeys(steps, Steps.column)


def whole_blocks(size: int, block: int) -> int:
    """Return how many of `size` elements are in full blocks; `size` if no block is full."""
    return size if size < block else size - size % block


def constant(value: float) -> Step:
    """Return a step that is a number."""
    return lambda _: np.full(1, value)
