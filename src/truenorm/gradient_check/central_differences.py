"""Derivatives by central differences of forward, extrapolated to a step of zero (Ridders)."""

import math

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.method import Direction, Estimate, added
from truenorm.gradient_check.noise import noise_of
from truenorm.gradient_check.problem import Array, Problem
from truenorm.gradient_check.steps import Neighbours, least_step, spread_of

__all__ = ["Central"]

LEVELS = 9
RESTARTS = 4
MARGIN = 8.0
"""Steps are so many times what an element can move by at least: then steps in between exist."""


class Central:
    """Needs nothing but calls of forward, and sees no more digits than forward has."""

    name = "central"
    reason = "central: differences of forward; they take any function"
    tolerance = 1e-6
    least_scale = 1.0
    most_elements = 512

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._inputs = _widened(problem)
        self._neighbours = Neighbours(self._inputs)

    def derivative(self, direction: Direction) -> Estimate:
        """Extrapolate central differences from ever smaller steps, and keep the best."""
        moving = self._inputs[direction.which][direction.step != 0]
        least = MARGIN * least_step(moving)
        first = max(2.0 ** round(math.log2(spread_of(self._inputs[direction.which]) / 4)), least)
        noise = self._noise(direction, least, first)
        found: list[Estimate] = []
        for restart in range(RESTARTS):
            step = max(first * 2.0 ** (-LEVELS * restart), least)
            found.insert(0, self._extrapolated(direction, step, least, noise))
            if step == least:
                break
        return _best(found)

    def _extrapolated(
        self, direction: Direction, step: float, least: float, noise: float
    ) -> Estimate:
        """Neville's scheme in h**2: errors of order 2, 4, ... are cancelled one by one."""
        previous: list[float] = []
        best = Estimate(math.nan, math.inf, 0.0)
        for _ in range(LEVELS):
            value, scale = self._difference(direction, step)
            row = [value]
            for order, above in enumerate(previous, start=1):
                better = row[-1] + (row[-1] - above) / (4.0**order - 1)
                off = max(abs(better - row[-1]), abs(better - above))
                floor = off + 2 * noise / step
                if floor < best.floor:
                    best = Estimate(better, floor, scale)
                row.append(better)
            previous = row
            step /= 2
            if step < least:
                break
        return best

    def _difference(
        self, direction: Direction, step: float, neighbour: tuple[int, int] = (0, 0)
    ) -> tuple[float, float]:
        """Return the central difference at a neighbour of the point, and its scale."""
        above = self._outputs(direction, step, neighbour)
        below = self._outputs(direction, -step, neighbour)
        # Subtracted before they are summed: outputs that did not move cancel exactly.
        dys = self._problem.dys
        return added(
            [dy * (a - b) / (2 * step) for dy, a, b in zip(dys, above, below, strict=True)]
        )

    def _outputs(
        self, direction: Direction, step: float, neighbour: tuple[int, int]
    ) -> list[NDArray[np.float64]]:
        arguments = self._neighbours.at(*neighbour, self._inputs)
        value = arguments[direction.which]
        arguments[direction.which] = value + (step * direction.step).astype(value.dtype)
        return [y.astype(np.float64) for y in self._problem.outputs(arguments)]

    def _noise(self, direction: Direction, least: float, first: float) -> float:
        """Return the noise of a difference times its step.

        It is measured with the smallest step and with the largest. Rounding errors that differ
        above and below do not depend on the step. But a forward that rounds to few digits is flat
        between jumps, so that small steps see nothing; and an error that is the same above and
        below, as for gamma where xhat is off, is a share of the difference whatever the step.
        """
        small = noise_of(lambda *at: self._difference(direction, least, at)[0])
        large = noise_of(lambda *at: self._difference(direction, first, at)[0])
        return max(least * small, first * large)


def _best(found: list[Estimate]) -> Estimate:
    """Return the best of estimates from ever larger steps.

    A function may be flat far away, and look as if its derivative were zero. What smaller steps
    contradict, beyond their own floor, is no better than that.
    """
    best = found[0]
    for position, estimate in enumerate(found):
        off = [abs(estimate.value - finer.value) - finer.floor for finer in found[:position]]
        floor = max([estimate.floor, *off])
        if floor < best.floor or math.isnan(best.value):
            best = estimate._replace(floor=floor)
    return best


def _widened(problem: Problem) -> list[Array]:
    """Return the inputs in float64, where differences see more, if forward takes them so."""
    wide = [value.astype(np.float64) for value in problem.inputs]
    try:
        problem.outputs(wide)
    except Exception:  # whatever it is, it takes its own types
        return problem.inputs
    return wide
