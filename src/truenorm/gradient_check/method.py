"""The protocol of a method: derivatives of the loss, and how accurate they are."""

import math
from typing import NamedTuple, Protocol

import numpy as np

from truenorm.gradient_check.problem import Contributions, Direction, Problem

CERTAINTY = 4.0
"""A measured floor is an estimate: a gradient fails if its error is this many times larger."""


class NotApplicableError(Exception):
    """A method cannot be used on a function; the message says why.

    `tie` explains a comparison of equal numbers, which the other methods cannot answer either.
    """

    def __init__(self, message: str, tie: str = "") -> None:
        super().__init__(message)
        self.tie = tie


class Estimate(NamedTuple):
    """A derivative with its accuracy.

    `floor` bounds its error, and `scale` is the sum of the magnitudes of all contributions to it.
    `leeway` is how much farther a correct gradient may be off: because the floor is an estimate,
    or because forward, rounded to its type, has another derivative than its formula. `lost` is
    the part of floor and leeway that is lost to rounding. `why` explains a floor that is more
    than rounding. `jump` is not zero if there are two derivatives, ``value - jump/2`` and
    ``value + jump/2``: to the left and to the right of a kink, or of a staircase and of the
    function that it follows. A correct gradient lies between them.
    """

    value: float
    floor: float
    scale: float
    leeway: float = 0.0
    why: str = ""
    lost: float = 0.0
    jump: float = 0.0


def measured(
    value: float,
    floor: float,
    scale: float,
    *,
    leeway: float = 0.0,
    why: str = "",
    lost: float = 0.0,
    jump: float = 0.0,
) -> Estimate:
    """Return an estimate whose floor was measured and not proven."""
    leeway += (CERTAINTY - 1) * floor
    return Estimate(value, floor, scale, leeway, why, lost, jump)


def sum_and_scale(contributions: Contributions) -> tuple[float, float]:
    """Return the sum of all contributions to a derivative, and the sum of their magnitudes."""
    value = math.fsum(each.sum() for each in contributions)
    return value, math.fsum(np.abs(each).sum() for each in contributions)


class Method(Protocol):
    """Differentiates one problem; the constructor may raise `NotApplicableError`."""

    name: str
    reason: str
    """Why it was chosen."""

    tolerance: float
    """The default tolerance for float64."""

    least_scale: float
    """Digits lost next to larger elements are no error, up to this share of the largest scale."""

    found_staircase: bool
    """True once forward was found to be a staircase: no method knows which derivative is meant."""

    def __init__(self, problem: Problem) -> None: ...

    def weight_bits(self, input_index: int) -> int:
        """Return the number of bits that projection weights of an input may have."""

    def derivative(self, direction: Direction) -> Estimate:
        """Return the derivative of sum(dy*forward) along a direction."""
