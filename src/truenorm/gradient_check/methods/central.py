"""Derivatives by central differences of forward, extrapolated to a step of zero (Ridders)."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from truenorm.gradient_check.directions import Direction, moved
from truenorm.gradient_check.methods.method import SURE, Estimate, added
from truenorm.gradient_check.problem import Array, Problem
from truenorm.gradient_check.sight.noise import Surroundings
from truenorm.gradient_check.sight.resolution import last_places, norm_of
from truenorm.gradient_check.sight.steps import least_step, spread_of, weight_bits

__all__ = ["Central"]

LEVELS = 9
RESTARTS = 4
MARGIN = 8.0
"""Steps are so many times what an element can move by at least: then steps in between exist."""
NEGLIGIBLE = 2.0**-30
"""Noise that is less beside the derivative needs no closer look."""
STEPPED = 0.01
"""How smooth a function must look, beside its slope, if it is to be one of small steps."""
SMALLEST = 2.0 ** (-LEVELS * RESTARTS - 1) / MARGIN
"""The smallest step beside the spread."""
NEAR_KINK = (
    "left and right of it the derivative differs by {jump:.2g}: a kink nearer than the smallest "
    "step, where there may be no derivative"
)
FLAT_IN_TYPE = (
    "forward does not move there: in its type it is flat, and a derivative below {floor:.2g} "
    "would not be seen"
)


class Sample(NamedTuple):
    """Differences with one step: the central one, its scale, and right minus left."""

    step: float
    slope: float
    scale: float
    jump: float


class Limit(NamedTuple):
    """What differences tend to, and how far off that may be; jump and noise are in the floor."""

    value: float
    floor: float
    scale: float
    jump: float
    noise: float


NOTHING = Limit(math.nan, math.inf, 0.0, 0.0, math.inf)


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
        self._surroundings = Surroundings(self._inputs)
        self._here = self._outputs(self._inputs)
        self._resolution = norm_of(last_places(problem, self._inputs))

    def weight_bits(self, which: int) -> int:
        """Return how fine the weights of a projection may be without larger steps."""
        return weight_bits(self._inputs[which], SMALLEST)

    def derivative(self, direction: Direction) -> Estimate:
        """Extrapolate central differences from ever smaller steps, and keep the best."""
        columns = list(self._columns(direction))
        coarse, fine = self._noises(direction, columns)
        noises = [coarse, *[fine] * (len(columns) - 1)]
        found = [_extrapolated(*pair) for pair in zip(columns, noises, strict=True)]
        (value, floor, scale, jump, _), contradiction = _best(found[::-1])
        why = ""
        if 2 * jump > floor:
            why = NEAR_KINK.format(jump=jump)
        elif not scale:
            why = FLAT_IN_TYPE.format(floor=floor)
        leeway = max((SURE - 1) * floor, contradiction)
        return Estimate(value, floor, scale, leeway, why)

    def _range(self, direction: Direction) -> tuple[float, float]:
        """Return the smallest step that can be taken, and the first one."""
        moving = self._inputs[direction.which][direction.step != 0]
        least = MARGIN * least_step(moving) / direction.grain
        spread = spread_of(self._inputs[direction.which])
        return least, max(2.0 ** round(math.log2(spread) - 2), least)

    def _columns(self, direction: Direction) -> Iterator[list[Sample]]:
        """Yield differences with steps that are halved, then begin anew with much smaller ones."""
        least, first = self._range(direction)
        for restart in range(RESTARTS):
            begin = max(first * 2.0 ** (-LEVELS * restart), least)
            steps = [begin * 2.0**-level for level in range(LEVELS)]
            yield [self._sample(direction, step) for step in steps if step >= least]
            if begin == least:
                return

    def _sample(self, direction: Direction, step: float) -> Sample:
        above, below = self._two_sides(self._inputs, direction, step)
        bends = ((a - y) - (y - b) for a, y, b in zip(above, self._here, below, strict=True))
        slope, scale = self._slope(above, below, 2 * step)
        jump, _ = added([share / step for share in self._problem.weighted(bends)])
        return Sample(step, slope, scale, jump)

    def _slope(self, above: list[Array], below: list[Array], apart: float) -> tuple[float, float]:
        """Return the difference quotient and its scale."""
        # Subtracted before they are summed: outputs that did not move cancel exactly.
        changes = (a - b for a, b in zip(above, below, strict=True))
        return added([share / apart for share in self._problem.weighted(changes)])

    def _two_sides(
        self, start: list[Array], direction: Direction, step: float
    ) -> tuple[list[Array], list[Array]]:
        """Return the outputs a step above and a step below a start."""
        above, below = (self._outputs(moved(start, direction, by)) for by in (step, -step))
        return above, below

    def _outputs(self, arguments: list[Array]) -> list[Array]:
        return [y.astype(np.float64) for y in self._problem.outputs(arguments)]

    def _noises(
        self, direction: Direction, columns: Sequence[Sequence[Sample]]
    ) -> tuple[float, float]:
        """Return the noise of differences times their step: with the largest, and with the others.

        Rounding errors that differ above and below do not depend on the step. But a forward that
        rounds to few digits is flat between jumps, so that the smallest steps see nothing; and an
        error that is the same above and below, as for gamma where xhat is off, is a share of the
        difference whatever the step. The largest steps may also cross kinks, which is their own
        noise alone.
        """
        least, first = self._range(direction)
        scale = max(sample.scale for column in columns for sample in column)

        def noise(step: float) -> float:
            # With a power of two, roundings to fewer bits would be the same above and below.
            multiple = 1.37 * step / least
            step = least * round(multiple) if multiple < 2**53 else 1.37 * step

            def slope(near: list[Array]) -> float:
                return self._slope(*self._two_sides(near, direction, step), 2 * step)[0]

            return step * self._surroundings.noise(slope, self._inputs, NEGLIGIBLE * scale)

        fine = max(noise(least), noise(columns[1][0].step) if columns[1:] else 0.0)
        fine = max(fine, self._resolution)
        return max(noise(first), fine), fine


def _extrapolated(column: Sequence[Sample], noise: float) -> Limit:
    """Extrapolate to a step of 0, as Neville does: errors of order h, h**2, ... cancel one by one.

    Of each step the entry with the smallest estimated error is kept. The jump of the derivative,
    which is 0 where there is one, is extrapolated beside its value: what remains of it tells of
    kinks nearer than the step, and counts as error.
    """
    if _diverges(column):
        return NOTHING
    kept: list[Limit] = []
    slopes: list[float] = []
    jumps: list[float] = []
    for sample in column:
        slopes_above, jumps_above = slopes, jumps
        slopes, jumps = [sample.slope], [sample.jump]
        best = NOTHING
        for order, (slope, jump) in enumerate(zip(slopes_above, jumps_above, strict=True)):
            # The central difference is even in the step, right minus left is odd.
            slopes.append(_better(slopes[-1], slope, 4.0 ** (order + 1)))
            jumps.append(_better(jumps[-1], jump, 2 * 4.0**order))
            off = max(abs(slopes[-1] - slopes[-2]), abs(slopes[-1] - slope))
            rounding = 2 * noise / sample.step
            floor = off + rounding + abs(jumps[-1])
            if floor < best.floor:
                best = Limit(slopes[-1], floor, sample.scale, abs(jumps[-1]), rounding)
        kept.append(best)
    agreed = [_in_agreement(three) for three in zip(kept, kept[1:], kept[2:], strict=False)]
    return min(agreed, key=lambda limit: limit.floor, default=NOTHING)


def _diverges(column: Sequence[Sample]) -> bool:
    """Whether slopes only grow: far beyond where a function moves, they are its range over h."""
    slopes = [abs(sample.slope) for sample in column]
    return all(0 < 1.5 * coarse < fine for coarse, fine in pairwise(slopes))


def _better(fine: float, coarse: float, ratio: float) -> float:
    """Cancel an error that is so many times smaller in the finer of two numbers."""
    return fine + (fine - coarse) / (ratio - 1)


def _in_agreement(row: tuple[Limit, Limit, Limit]) -> Limit:
    """Return the last of some limits if the others agree: of many, some are near by chance."""
    *others, last = row
    off = [abs(last.value - other.value) for other in others]
    jump = max(each.jump for each in row)
    return last._replace(floor=max(last.floor, jump, *off), jump=jump)


def _best(found: list[Limit]) -> tuple[Limit, float]:
    """Return the best of limits from ever larger steps, and how far the next finer one is off.

    A function may be flat far away, and look as if its derivative were zero. What smaller steps
    contradict, beyond their noise, is no better than that. But where nothing at all moves with
    them, and with larger ones all is smooth, forward rounds to few digits.
    """
    smooth = [k for k, limit in enumerate(found) if limit.floor < STEPPED * abs(limit.value)]
    if smooth:
        found = [limit for k, limit in enumerate(found) if limit.scale or k > smooth[0]]
    best, contradiction = found[0], 0.0
    for position, limit in enumerate(found):
        off = [abs(limit.value - finer.value) - finer.noise for finer in found[:position]]
        floor = max([limit.floor, *off])
        if floor < best.floor or math.isnan(best.value):
            best = limit._replace(floor=floor)
            finer = found[max(0, position - 1)]
            contradiction = abs(limit.value - finer.value) if math.isfinite(finer.value) else 0.0
    return best, contradiction


def _widened(problem: Problem) -> list[Array]:
    """Return the inputs in float64, where differences see more, if forward takes them so."""
    wide = [value.astype(np.float64) for value in problem.inputs]
    try:
        problem.outputs(wide)
    except Exception:  # whatever it is, it takes its own types
        return problem.inputs
    return wide
