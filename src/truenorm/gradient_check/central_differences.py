"""Derivatives by central differences of forward, extrapolated to a step of zero (Ridders)."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.method import SURE, Estimate, added
from truenorm.gradient_check.noise import (
    VAGUE,
    Surroundings,
    last_places,
    least_step,
    norm_of,
    spread_of,
    weight_bits,
)
from truenorm.gradient_check.problem import Array, Direction, Problem, Shares, moved

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
SCREENED = (2.0**-4, 2.0**-5, 2.0**-6)
"""Steps of the screening, beside the first: errors of order h**2 and h**4 cancel."""
CONFIRMED = (2.0**-13, 2.0**-24)
"""Smaller steps of the screening, which must not contradict it."""
COARSE = 2.0**-23
"""If the floor of three steps is above this, beside the derivative, nine steps are taken."""
SHARE = 1 / 4
"""How much of the tolerance the floor of the screening may take."""
ROUNDED = 2.0**-46
"""Noise of an output above this, beside it, is looked at more closely: it may be a fine wiggle."""
MOST_SCREENED = 2**20
"""Noise is measured for each output by itself; of more outputs than this it is not."""
OUTSIDE = "forward is not finite, or raises, next to these inputs: choose others farther inside"
ROUNDED_INSIDE = (
    "forward changes in jumps, as if it rounded to fewer digits than float64 inside (a cast?): "
    "its differences show a derivative to within {floor:.2g}"
)
NEAR_KINK = (
    "left and right of it the derivative differs by {jump:.2g}: a kink nearer than the smallest "
    "step, where there may be no derivative"
)
FLAT_IN_TYPE = (
    "forward does not move there: in its type it is flat, and a derivative below {floor:.2g} "
    "would not be seen"
)


class Sample(NamedTuple):
    """Differences with one step: the central one, its scale, right minus left, what moves."""

    step: float
    slope: float
    scale: float
    jump: float
    moving: list[NDArray[np.bool_]]


class Limit(NamedTuple):
    """What differences tend to, and how far off that may be; jump and noise are in the floor."""

    value: float
    floor: float
    scale: float
    jump: float
    noise: float


_Row = list[float]
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
        self._last_places = last_places(problem, self._inputs)
        self.screens = sum(y.size for y in self._here) <= MOST_SCREENED

    def weight_bits(self, which: int) -> int:
        """Return how fine the weights of a projection may be without larger steps."""
        return weight_bits(self._inputs[which], SMALLEST)

    def derivative(self, direction: Direction) -> Estimate:
        """Extrapolate central differences from ever smaller steps, and keep the best."""
        columns = list(self._columns(direction))
        coarse, fine = self._noises(direction, columns)
        noises = [coarse, *[fine] * (len(columns) - 1)]
        limits = [_extrapolated(*pair) for pair in zip(columns, noises, strict=True)]
        (value, floor, scale, jump, rounding), contradiction = _best(limits[::-1])
        why = ""
        if not math.isfinite(floor):
            why = OUTSIDE
        elif value and _is_stepped(columns):
            why = ROUNDED_INSIDE.format(floor=floor)
        elif 2 * jump > floor:
            why = NEAR_KINK.format(jump=jump)
        elif not scale:
            why = FLAT_IN_TYPE.format(floor=floor)
        # An output that does not move may do so below its last place, as the largest of a softmax.
        unseen = norm_of(self._last_places) / columns[0][0].step
        leeway = max((SURE - 1) * floor, contradiction) + unseen
        return Estimate(value, floor, scale, leeway, why, lost=min(rounding, floor))

    def screen(self, direction: Direction) -> Estimate:
        """Extrapolate differences with three steps, and look for contradictions with two more.

        That is enough for most elements of most functions, and where it is not, nine steps mostly
        are. The floor has everything that could be wrong: the last correction, noise, a kink, and
        what smaller steps contradict.
        """
        least, first = self._range(direction)
        if first * SCREENED[-1] < least:
            return Estimate(math.nan, math.inf, 0.0)
        column = [self._sample(direction, first * share) for share in SCREENED]
        small = [first * share for share in CONFIRMED] + self._local_steps(direction)
        finer = [self._sample(direction, max(step, least)) for step in small]
        noise = self._noise_of(column + finer)
        *_, (_, (*_, before, value), _, (*_, jump)) = _scheme(column)
        floor = abs(value - before) + abs(jump) + 2 * noise / column[-1].step
        if not floor <= COARSE * column[-1].scale:
            value, floor, *_ = _extrapolated(next(self._columns(direction)), noise)
        for sample in finer:
            # Right minus left is the curvature times the step, and no more than that.
            bend = column[-1].jump * sample.step / column[-1].step
            floor += max(0.0, abs(sample.slope - value) - 2 * noise / sample.step)
            floor += max(0.0, abs(sample.jump - bend) - 4 * noise / sample.step)
        floor = floor / SHARE if math.isfinite(floor) else math.inf
        lost = 2 * noise / column[-1].step
        return Estimate(value, floor, column[-1].scale, lost=min(lost, floor))

    def _noise_of(self, samples: Sequence[Sample]) -> float:
        """Bound the noise of the loss: that of the outputs which move in any sample."""
        return norm_of(self._of_moving(samples, self._output_noise)) + self._resolution(samples)

    def _resolution(self, samples: Sequence[Sample]) -> float:
        """Return the last place of the outputs that move, or of all if none does."""
        return norm_of(self._of_moving(samples, self._last_places))

    def _of_moving(self, samples: Sequence[Sample], shares: Shares) -> Shares:
        moving = zip(*(sample.moving for sample in samples), strict=True)
        masks = [np.logical_or.reduce(each) for each in moving]
        if not any(mask.any() for mask in masks):
            return shares
        return [np.where(mask, share, 0.0) for mask, share in zip(masks, shares, strict=True)]

    @cached_property
    def _output_noise(self) -> Shares:
        """Bound the rounding errors of each output, in the loss."""
        shapes = [y.shape for y in self._here]

        def outputs(near: list[Array]) -> NDArray[np.float64]:
            return np.concatenate([y.ravel() for y in self._outputs(near)])

        vague = ROUNDED * np.abs(outputs(self._inputs))
        bound, is_flat, far = self._surroundings.noise(outputs, self._inputs, 0.0, vague)
        noise = np.where(is_flat, far, bound)  # between jumps of a staircase there is none
        ends = np.cumsum([y.size for y in self._here])[:-1]
        parts = zip(np.split(noise, ends), shapes, strict=True)
        return [np.abs(share) for share in self._problem.weighted(n.reshape(s) for n, s in parts)]

    def _range(self, direction: Direction) -> tuple[float, float]:
        """Return the smallest step that can be taken, and the first one."""
        moving = self._inputs[direction.which][direction.step != 0]
        least = MARGIN * least_step(moving) / direction.grain
        spread = spread_of(self._inputs[direction.which])
        return least, max(2.0 ** round(math.log2(spread) - 2), least)

    def _local_steps(self, direction: Direction) -> list[float]:
        """Return a step for elements much smaller than the spread: functions may change there."""
        _, first = self._range(direction)
        moving = np.abs(self._inputs[direction.which][direction.step != 0])
        size = float(moving.min(where=moving > 0, initial=math.inf))
        local = 2.0 ** (math.floor(math.log2(size)) - 2) if math.isfinite(size) else first
        return [local] if local < first * 2.0 ** (-LEVELS * (RESTARTS - 1)) else []

    def _columns(self, direction: Direction) -> Iterator[list[Sample]]:
        """Yield differences with steps that are halved, then begin anew with much smaller ones."""
        least, first = self._range(direction)
        begins = [first * 2.0 ** (-LEVELS * restart) for restart in range(RESTARTS)]
        for begin in begins + self._local_steps(direction):
            begin = max(begin, least)
            steps = [begin * 2.0**-level for level in range(LEVELS)]
            yield [self._sample(direction, step) for step in steps if step >= least]
            if begin == least:
                return

    def _sample(self, direction: Direction, step: float) -> Sample:
        above, below = self._two_sides(self._inputs, direction, step)
        sides = list(zip(above, self._here, below, strict=True))
        bends = ((a - y) - (y - b) for a, y, b in sides)
        slope, scale = self._slope(above, below, 2 * step)
        jump, _ = added([share / step for share in self._problem.weighted(bends)])
        moving = [(a != y) | (y != b) for a, y, b in sides]
        return Sample(step, slope, scale, jump, moving)

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
        """Return the outputs, NaN where forward raises: a step may leave its domain."""
        try:
            return [y.astype(np.float64) for y in self._problem.outputs(arguments)]
        except Exception:
            return [np.full(dy.shape, np.nan) for dy in self._problem.dys]

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

            noise = self._surroundings.noise(
                slope, self._inputs, NEGLIGIBLE * scale, VAGUE * scale
            )
            return step * float(noise.bound)

        samples = [sample for column in columns for sample in column]
        if self.screens:
            fine = self._noise_of(samples)
        else:
            fine = max(noise(least), noise(columns[1][0].step) if columns[1:] else 0.0)
        fine = max(fine, self._resolution(samples))
        return max(noise(first), fine), fine


def _scheme(column: Sequence[Sample]) -> Iterator[tuple[Sample, _Row, _Row, _Row]]:
    """Extrapolate to a step of 0, as Neville does: errors of order h, h**2, ... cancel one by one.

    Yield each sample with its row of the scheme, the row before, and the row of jumps. The jump of
    the derivative, which is 0 where there is one, is extrapolated beside its value.
    """
    slopes: _Row = []
    jumps: _Row = []
    for sample in column:
        coarser, jumps_above = slopes, jumps
        slopes, jumps = [sample.slope], [sample.jump]
        for order, (slope, jump) in enumerate(zip(coarser, jumps_above, strict=True)):
            # The central difference is even in the step, right minus left is odd.
            slopes.append(_better(slopes[-1], slope, 4.0 ** (order + 1)))
            jumps.append(_better(jumps[-1], jump, 2 * 4.0**order))
        yield sample, slopes, coarser, jumps


def _extrapolated(column: Sequence[Sample], noise: float) -> Limit:
    """Return the best entry of the scheme: of each step the one with the smallest error.

    What remains of the jump tells of kinks nearer than the step, and counts as error.
    """
    if _diverges(column):
        return NOTHING
    rows: list[Limit] = []
    for sample, slopes, coarser, jumps in _scheme(column):
        best = NOTHING
        rounding = 2 * noise / sample.step
        for order, slope in enumerate(coarser):
            value, jump = slopes[order + 1], abs(jumps[order + 1])
            off = max(abs(value - slopes[order]), abs(value - slope))
            floor = off + rounding + jump
            if floor < best.floor:
                best = Limit(value, floor, sample.scale, jump, rounding)
        rows.append(best)
    agreed = [_in_agreement(three) for three in zip(rows, rows[1:], rows[2:], strict=False)]
    return min(agreed, key=lambda limit: limit.floor, default=NOTHING)


def _diverges(column: Sequence[Sample]) -> bool:
    """Return True if slopes only grow, as the range of a function that is flat far away over h."""
    slopes = [abs(sample.slope) for sample in column]
    return all(0 < 1.5 * coarse < fine for coarse, fine in pairwise(slopes))


def _is_stepped(columns: Sequence[Sequence[Sample]]) -> bool:
    """Return True if forward moves with large steps, and not at all with some small ones."""
    scales = [sample.scale for column in columns for sample in column]
    return any(scales) and not all(scales)


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
