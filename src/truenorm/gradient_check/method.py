"""What every method offers: derivatives of the loss, and how far to trust them."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.problem import Problem

__all__ = ["Direction", "Estimate", "Method", "RefusedError", "added"]


class RefusedError(Exception):
    """A method cannot be used on a function; the message says why."""


class Direction(NamedTuple):
    """Which input moves, and where to: a unit vector, or signs for a projection."""

    which: int
    step: NDArray[np.float64]


class Estimate(NamedTuple):
    """A derivative.

    `floor` is how far it may be off, `scale` the sum of the magnitudes of what it is made of:
    each output's share.
    """

    value: float
    floor: float
    scale: float


def added(shares: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """Return the sum of each output's shares in a derivative, and its scale."""
    value = math.fsum(share.sum() for share in shares)
    return value, math.fsum(np.abs(share).sum() for share in shares)


class Method(Protocol):
    """Finds derivatives of one problem; making it raises `RefusedError` where it cannot."""

    name: str
    reason: str
    """Why it was chosen."""

    tolerance: float
    """The relative error allowed in float64 unless the caller says otherwise."""

    least_scale: float
    """An element is held against its own scale, but at least this share of the largest one."""

    most_elements: int
    """Inputs with more are checked by random projections."""

    def __init__(self, problem: Problem) -> None: ...

    def derivative(self, direction: Direction) -> Estimate:
        """Return the derivative of sum(dy*forward) along a direction."""
