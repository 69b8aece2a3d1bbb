"""What a complex step cannot see: kinks at the point, and parts that are not analytic."""

import math
from collections.abc import Callable

import numpy as np

from truenorm.gradient_check.methods.method import added
from truenorm.gradient_check.problem import Array, Problem, Shares
from truenorm.gradient_check.sight.resolution import norm_of

__all__ = ["REACHES", "SIDES", "Interval", "jump_at", "not_excluded"]

SIDES = tuple(2.0**-k for k in (16, 24, 32, 40, 48))
"""How far to the left and right to look for a kink, beside the spread."""
REACHES = tuple(2.0**-k for k in (1, 2, 4, 6, 10, 14, 18, 22, 26))
"""Lengths of intervals to average over, beside the spread."""
NEWTON_COTES = np.array([989, 5888, -928, 10496, -4540, 10496, -928, 5888, 989]) / 28350
"""Weights of the mean over an interval from nine equally spaced values, exact to degree nine."""


class Interval:
    """Forward along one direction: its outputs, and their shares in the derivative.

    Parameters
    ----------
    problem : Problem
        Whose loss it is.
    outputs, shares : callable
        Of how far to move; shares are those of a complex step.
    last_places : list of ndarray
        One for each output: see `last_places`.
    unit : float
        The spread of the input.
    """

    def __init__(
        self,
        problem: Problem,
        outputs: Callable[[float], list[Array]],
        shares: Callable[[float], Shares],
        last_places: Shares,
        unit: float,
    ) -> None:
        self.problem, self.outputs, self.shares = problem, outputs, shares
        self.last_places, self.unit = last_places, unit
        self.shares_here = shares(0.0)
        self._here = outputs(0.0)
        self._slopes: dict[float, float] = {}

    def slope(self, moved: float) -> float:
        """Return the derivative so many units away."""
        if moved not in self._slopes:
            self._slopes[moved] = added(self.shares(moved * self.unit))[0]
        return self._slopes[moved]

    def mismatch(self, reach: float) -> tuple[float, float]:
        """Compare the mean of the derivative over an interval with the change of forward.

        Return the difference, and what rounding accounts for at least.
        """
        nodes = np.linspace(0, reach, NEWTON_COTES.size)
        shares = [self.shares_here, *(self.shares(float(node)) for node in nodes[1:])]
        there = self.outputs(reach)
        moves = self.problem.weighted(y - y0 for y, y0 in zip(there, self._here, strict=True))
        misses, rounding = [], []
        for moved, last_place, *slopes in zip(moves, self.last_places, *shares, strict=True):
            predicted = np.tensordot(NEWTON_COTES, slopes, axes=1)
            change = moved / reach
            misses.append(predicted - change)
            rounding.append(np.where((change != 0) | (predicted != 0), last_place, 0.0))
        if not any(each.any() for each in rounding):  # nothing moves: all of it may be flat
            rounding = self.last_places
        return abs(added(misses)[0]), norm_of(rounding) / abs(reach)


def jump_at(interval: Interval, enough: float) -> float:
    """Return by how much the derivative jumps at the point, or too near to tell.

    On the two sides of a point, derivatives differ by a multiple of the distance, which is
    extrapolated to 0.
    """
    least = math.inf
    for side in SIDES:
        near, far = (
            interval.slope(distance) - interval.slope(-distance) for distance in (side, 2 * side)
        )
        jump = abs(2 * near - far)
        least = min(least, jump) if math.isfinite(jump) else least
        if least <= enough:
            break
    return least


def not_excluded(interval: Interval, enough: float) -> float:
    """Return how large a part of the derivative may be that a complex step does not see.

    Over an interval, forward must change by the integral of its derivative, on each side of the
    point by itself: over both together, abs changes by nothing. The interval is long beside
    rounding errors and short beside the function: which one is, is not known, so several are
    tried, and the best counts. Twice the mismatch, since it is an average.
    """
    least = math.inf
    for reach in REACHES:
        sides = [interval.mismatch(side * reach * interval.unit) for side in (1, -1)]
        found = max(2 * miss + rounding for miss, rounding in sides)
        least = min(least, found) if math.isfinite(found) else least
        if least <= enough or max(rounding for _, rounding in sides) >= least:
            break  # rounding only grows from here
    return least
