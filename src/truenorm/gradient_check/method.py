"""What every method offers: derivatives of the loss, and how far to trust them."""

import math
from typing import NamedTuple, Protocol

import numpy as np

from truenorm.gradient_check.problem import Direction, Problem, Shares

SURE = 4.0
"""A floor is often an estimate: what is off by so many times that is called wrong."""


class RefusedError(Exception):
    """A method cannot be used on a function; the message says why.

    `tie` explains a comparison of equal numbers, which leaves other methods without an answer too.
    """

    def __init__(self, message: str, tie: str = "") -> None:
        super().__init__(message)
        self.tie = tie


class Estimate(NamedTuple):
    """A derivative.

    `floor` is how far it may be off, `scale` the sum of the magnitudes of what it is made of:
    each output's share. `leeway` is how much farther a right gradient may be from it: because the
    floor is an estimate, or because forward, rounded to its type, has another derivative than its
    formula. `lost` is how much of floor and leeway is digits that rounding loses. `why` says what
    the floor is made of, where that is more than rounding.
    """

    value: float
    floor: float
    scale: float
    leeway: float = 0.0
    why: str = ""
    lost: float = 0.0


def added(shares: Shares) -> tuple[float, float]:
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
    """Digits lost beside larger elements are no error, up to this share of the largest scale."""

    screens: bool
    """True if `screen` is cheaper than `derivative`."""

    most_elements: int
    """Inputs with more are checked by random projections."""

    def __init__(self, problem: Problem) -> None: ...

    def weight_bits(self, which: int) -> int:
        """Return how fine the weights of a projection of an input may be."""

    def derivative(self, direction: Direction) -> Estimate:
        """Return the derivative of sum(dy*forward) along a direction."""

    def screen(self, direction: Direction) -> Estimate:
        """Return a cheap estimate, with a floor that is large where it cannot be trusted."""
