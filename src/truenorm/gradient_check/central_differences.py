"""Derivatives by central differences of forward, extrapolated to a step of zero (Ridders)."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.method import CERTAINTY, Estimate, measured, sum_and_scale
from truenorm.gradient_check.noise import (
    SUSPICIOUS,
    NoiseEstimator,
    least_step,
    output_ulps,
    root_sum_square,
    spread_of,
    weight_bits,
)
from truenorm.gradient_check.problem import Array, Contributions, Direction, Problem, move_inputs

LEVELS = 9
RESTARTS = 4
MARGIN = 8.0
"""Steps are at least this multiple of the least exact step, so that there are steps in between."""
NEGLIGIBLE = 2.0**-30
"""Noise below this, relative to the derivative, is not measured more closely."""
SMOOTH = 0.01
"""The largest relative floor of a derivative that counts as smooth."""
SMALLEST_STEP = 2.0 ** (-LEVELS * RESTARTS - 1) / MARGIN
"""The smallest step relative to the spread."""
KINK_STEP = 1 / 64
"""Steps that look for a kink, relative to the smallest step of a limit."""
OUTPUT_ROUNDING = 2.0**-46
"""Larger relative noise of an output is measured more closely: it may be a fine wiggle."""
MAX_SEPARATE_OUTPUTS = 2**20
"""The noise of more outputs is measured in their sum."""
OUTSIDE = "forward is not finite, or raises, next to these inputs: choose others farther inside"
ROUNDED_INSIDE = (
    "forward changes in jumps, as if it rounded to fewer digits than float64 inside (a cast?): "
    "its differences show a derivative to within {floor:.2g}"
)
NEAR_KINK = (
    "the derivatives to the left and to the right differ by {jump:.2g}: a kink nearer than the "
    "smallest step, where there may be no derivative"
)
AT_KINK = (
    "the derivatives on the two sides of a kink are {low:.6g} and {high:.6g}: a gradient there "
    "must lie between them"
)
STAIRCASE = (
    "forward is a staircase: next to the inputs it has the derivative {near:.6g}, and over many "
    "of its steps {wide:.6g}. Check a smooth forward, such as the equation that a bisection solves"
)
FLAT_IN_TYPE = (
    "forward does not change there: in its type it is flat, and a derivative below {floor:.2g} "
    "is not visible"
)


class Differences(NamedTuple):
    """Differences with one step.

    `slope` is the central difference, `jump` the right difference minus the left one, and
    `moving` marks the outputs that change.
    """

    step: float
    slope: float
    scale: float
    jump: float
    moving: list[NDArray[np.bool_]]


class Extrapolation(NamedTuple):
    """A limit of differences and a bound of its error, which includes `jump` and `noise`.

    `rest` is the bound without the jump, and `step` the smallest step.
    """

    value: float
    floor: float
    scale: float
    jump: float
    noise: float
    rest: float
    step: float


_Row = list[float]
NO_LIMIT = Extrapolation(math.nan, math.inf, 0.0, 0.0, math.inf, math.inf, math.inf)


class Central:
    """Needs nothing but calls of forward, and is no more accurate than forward."""

    name = "central"
    reason = "central: differences of forward; they take any function"
    tolerance = 1e-6
    least_scale = 1.0
    found_staircase = False

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._inputs = _in_float64(problem)
        self._noise_estimator = NoiseEstimator(self._inputs)
        self._y = self._outputs(self._inputs)
        self._ulps = output_ulps(problem, self._inputs)
        self._separately = sum(y.size for y in self._y) <= MAX_SEPARATE_OUTPUTS

    def weight_bits(self, input_index: int) -> int:
        """Return the number of bits that projection weights may have without larger steps."""
        return weight_bits(self._inputs[input_index], SMALLEST_STEP)

    def derivative(self, direction: Direction) -> Estimate:
        """Extrapolate central differences from ever smaller steps, and return the best limit."""
        columns = list(self._columns(direction))
        coarse, fine = self._noise_of_columns(direction, columns)
        noises = [coarse, *[fine] * (len(columns) - 1)]
        limits = [_extrapolate(*pair) for pair in zip(columns, noises, strict=True)]
        limit, contradiction = _best(limits[::-1])
        value, floor, scale, jump, rounding, rest, _ = limit
        why, width = "", 0.0
        if not math.isfinite(floor):
            why = OUTSIDE
        elif value and _is_staircase(columns):
            why = ROUNDED_INSIDE.format(floor=floor)
        elif width := self._kink_width(direction, limit):
            why = AT_KINK.format(low=value - width / 2, high=value + width / 2)
            floor = rest
        elif 2 * jump > floor:
            why = NEAR_KINK.format(jump=jump)
        elif not scale:
            why = FLAT_IN_TYPE.format(floor=floor)
        # A constant output may change below its last place, as the largest of a softmax does.
        invisible = root_sum_square(self._ulps) / columns[0][0].step
        estimate = measured(
            value,
            floor,
            scale,
            leeway=max(0.0, contradiction - (CERTAINTY - 1) * floor) + invisible,
            why=why,
            lost=min(rounding, floor),
            jump=width,
        )
        # A derivative that is not zero may be that of a small wiggle.
        return estimate if scale else self.staircase(direction, estimate) or estimate

    def staircase(self, direction: Direction, near: Estimate) -> Estimate | None:
        """Return an estimate with both derivatives of a staircase, or None if it is none.

        The result of a bisection changes in steps. Within a step its derivative is zero, or that
        of the bracket; differences over many steps show the function that it follows. They are
        wide: from a quarter of the spread or of the elements that move, whichever is smaller.
        """
        least, first = self._step_range(direction)
        size = float(np.median(np.abs(self._inputs[direction.input_index][direction.step != 0])))
        start = max(min(first, 2.0 ** round(math.log2(size) - 2)) if size else first, least)
        steps = [start * 2.0**-level for level in range(LEVELS) if start * 2.0**-level >= least]
        column = [self._differences(direction, step) for step in steps]
        # The noise of a staircase is its steps, which corrections of the extrapolation show.
        wide = _extrapolate(column, self._resolution(column))
        jump = abs(wide.value - near.value)
        # Outputs may change below their last place, and limits of a staircase agree by chance.
        floor = wide.floor + near.floor + root_sum_square(self._ulps) / wide.step
        chance = SMOOTH * abs(wide.value)
        if not jump > CERTAINTY * floor + chance:
            return None
        return measured(
            (wide.value + near.value) / 2,
            floor + chance,
            max(wide.scale, near.scale),
            why=STAIRCASE.format(near=near.value, wide=wide.value),
            jump=jump,
        )

    def _noise_of(self, samples: Sequence[Differences]) -> float:
        """Bound the noise of the loss: that of the outputs which change in any sample."""
        noise = root_sum_square(self._where_moving(samples, self._output_noise))
        return noise + self._resolution(samples)

    def _resolution(self, samples: Sequence[Differences]) -> float:
        """Return the last place of the outputs that change, or of all if none does."""
        return root_sum_square(self._where_moving(samples, self._ulps))

    def _where_moving(
        self, samples: Sequence[Differences], contributions: Contributions
    ) -> Contributions:
        moving = zip(*(sample.moving for sample in samples), strict=True)
        masks = [np.logical_or.reduce(each) for each in moving]
        if not any(mask.any() for mask in masks):
            return contributions
        pairs = zip(masks, contributions, strict=True)
        return [np.where(mask, each, 0.0) for mask, each in pairs]

    @cached_property
    def _output_noise(self) -> Contributions:
        """Bound what the rounding errors of each output contribute to the loss."""

        def outputs(inputs: list[Array]) -> NDArray[np.float64]:
            return np.concatenate([y.ravel() for y in self._outputs(inputs)])

        suspicious = OUTPUT_ROUNDING * np.abs(outputs(self._inputs))
        bound, is_flat, coarse = self._noise_estimator.noise(
            outputs, self._inputs, 0.0, suspicious
        )
        noise = np.where(is_flat, coarse, bound)  # between the jumps of a staircase there is none
        ends = np.cumsum([y.size for y in self._y])[:-1]
        parts = zip(np.split(noise, ends), self._y, strict=True)
        contributions = self._problem.times_dy(part.reshape(y.shape) for part, y in parts)
        return [np.abs(each) for each in contributions]

    def _kink_width(self, direction: Direction, limit: Extrapolation) -> float:
        """Return how far right and left derivatives are apart, summed over all outputs.

        Return 0 unless that is far more than the error of the limit.

        In the loss, the jumps of several outputs may cancel. Steps are smaller than that of a
        limit, so that curvature is within the noise, and a jump within the noise does not count.
        """
        step = max(KINK_STEP * limit.step, self._step_range(direction)[0])

        def bends(step: float) -> Contributions:
            triples = zip(*self._both_sides(self._inputs, direction, step), self._y, strict=True)
            return self._problem.times_dy(((a - y) - (y - b)) / step for a, b, y in triples)

        noises = self._output_noise if self._separately else self._ulps
        total = 0.0
        for near, far, noise, ulp in zip(
            bends(step), bends(2 * step), noises, self._ulps, strict=True
        ):
            jump = np.abs(2 * near - far)
            # Two bends of four outputs each, the first one twice.
            total += float(np.where(jump > 12 * (noise + ulp) / step, jump, 0.0).sum())
        return total if total > CERTAINTY * limit.rest else 0.0

    def _step_range(self, direction: Direction) -> tuple[float, float]:
        """Return the smallest step that is exact, and the first step."""
        value = self._inputs[direction.input_index]
        least = MARGIN * least_step(value[direction.step != 0]) / direction.grain
        return least, max(2.0 ** round(math.log2(spread_of(value)) - 2), least)

    def _local_steps(self, direction: Direction) -> list[float]:
        """Return a step for elements much smaller than the spread: forward may change there."""
        _, first = self._step_range(direction)
        moving = np.abs(self._inputs[direction.input_index][direction.step != 0])
        size = float(moving.min(where=moving > 0, initial=math.inf))
        local = 2.0 ** (math.floor(math.log2(size)) - 2) if math.isfinite(size) else first
        return [local] if local < first * 2.0 ** (-LEVELS * (RESTARTS - 1)) else []

    def _columns(self, direction: Direction) -> Iterator[list[Differences]]:
        """Yield differences with halved steps, then again from much smaller first steps."""
        least, first = self._step_range(direction)
        starts = [first * 2.0 ** (-LEVELS * restart) for restart in range(RESTARTS)]
        for start in starts + self._local_steps(direction):
            start = max(start, least)
            steps = [start * 2.0**-level for level in range(LEVELS)]
            yield [self._differences(direction, step) for step in steps if step >= least]
            if start == least:
                return

    def _differences(self, direction: Direction, step: float) -> Differences:
        above, below = self._both_sides(self._inputs, direction, step)
        triples = list(zip(above, self._y, below, strict=True))
        bends = ((a - y) - (y - b) for a, y, b in triples)
        slope, scale = self._quotient(above, below, 2 * step)
        jump, _ = sum_and_scale([each / step for each in self._problem.times_dy(bends)])
        moving = [(a != y) | (y != b) for a, y, b in triples]
        return Differences(step, slope, scale, jump, moving)

    def _quotient(
        self, above: list[Array], below: list[Array], distance: float
    ) -> tuple[float, float]:
        """Return the difference quotient and its scale."""
        # Subtract before summing: outputs that do not change cancel exactly.
        changes = (a - b for a, b in zip(above, below, strict=True))
        return sum_and_scale([each / distance for each in self._problem.times_dy(changes)])

    def _both_sides(
        self, start: list[Array], direction: Direction, step: float
    ) -> tuple[list[Array], list[Array]]:
        """Return the outputs one step above and one step below a start."""
        above, below = (self._outputs(move_inputs(start, direction, by)) for by in (step, -step))
        return above, below

    def _outputs(self, inputs: list[Array]) -> list[Array]:
        """Return the outputs, or NaN if forward raises: a step may leave its domain."""
        try:
            return [y.astype(np.float64) for y in self._problem.outputs(inputs)]
        except Exception:
            return [np.full(dy.shape, np.nan) for dy in self._problem.dys]

    def _noise_of_columns(
        self, direction: Direction, columns: Sequence[Sequence[Differences]]
    ) -> tuple[float, float]:
        """Return the noise of differences times their step, of the first column and the others.

        Rounding errors that differ above and below do not depend on the step. There are two
        exceptions. A forward that rounds to few digits is flat between jumps, so that the
        smallest steps show nothing. An error that is the same above and below, as for gamma if
        xhat is off, is proportional to the difference for any step. The largest steps may also
        cross kinks, which is noise of these steps only.
        """
        least, first = self._step_range(direction)
        samples = [sample for column in columns for sample in column]
        scale = max(sample.scale for sample in samples)

        def noise(step: float) -> float:
            # With a power of two, roundings to fewer bits would be the same above and below.
            multiple = 1.37 * step / least
            step = least * round(multiple) if multiple < 2**53 else 1.37 * step

            def slope(inputs: list[Array]) -> float:
                return self._quotient(*self._both_sides(inputs, direction, step), 2 * step)[0]

            measured = self._noise_estimator.noise(
                slope, self._inputs, NEGLIGIBLE * scale, SUSPICIOUS * scale
            )
            return step * float(measured.bound)

        if self._separately:
            fine = self._noise_of(samples)
        else:
            fine = max(noise(least), noise(columns[1][0].step) if columns[1:] else 0.0)
        fine = max(fine, self._resolution(samples))
        return max(noise(first), fine), fine


def _neville(column: Sequence[Differences]) -> Iterator[tuple[Differences, _Row, _Row, _Row]]:
    """Extrapolate to a step of 0 by Neville's scheme: errors of order h, h**2, ... cancel.

    Yield each sample with its row of the scheme, the row before, and the row of jumps. The jump
    of the derivative, which is 0 if there is a derivative, is extrapolated in the same way.
    """
    slopes: _Row = []
    jumps: _Row = []
    for sample in column:
        coarser, coarser_jumps = slopes, jumps
        slopes, jumps = [sample.slope], [sample.jump]
        for order, (slope, jump) in enumerate(zip(coarser, coarser_jumps, strict=True)):
            # The central difference is even in the step, right minus left is odd.
            slopes.append(_cancel_error(slopes[-1], slope, 4.0 ** (order + 1)))
            jumps.append(_cancel_error(jumps[-1], jump, 2 * 4.0**order))
        yield sample, slopes, coarser, jumps


def _cancel_error(fine: float, coarse: float, ratio: float) -> float:
    """Cancel an error that is `ratio` times smaller in the finer of two numbers."""
    return fine + (fine - coarse) / (ratio - 1)


def _extrapolate(column: Sequence[Differences], noise: float) -> Extrapolation:
    """Return the best entry of the scheme: the one with the smallest error at each step.

    A remaining jump indicates a kink nearer than the step, and counts as an error.
    """
    if _diverges(column):
        return NO_LIMIT
    rows: list[Extrapolation] = []
    for sample, slopes, coarser, jumps in _neville(column):
        best = NO_LIMIT
        rounding = 2 * noise / sample.step
        for order, slope in enumerate(coarser):
            value, jump = slopes[order + 1], abs(jumps[order + 1])
            correction = max(abs(value - slopes[order]), abs(value - slope))
            rest = correction + rounding
            if rest + jump < best.floor:
                floor = rest + jump
                best = Extrapolation(value, floor, sample.scale, jump, rounding, rest, sample.step)
        rows.append(best)
    agreeing = [_agreeing(three) for three in zip(rows, rows[1:], rows[2:], strict=False)]
    return min(agreeing, key=lambda limit: limit.floor, default=NO_LIMIT)


def _diverges(column: Sequence[Differences]) -> bool:
    """Return True if slopes only grow, as the range of a bounded function over h does."""
    slopes = [abs(sample.slope) for sample in column]
    return all(0 < 1.5 * coarse < fine for coarse, fine in pairwise(slopes))


def _is_staircase(columns: Sequence[Sequence[Differences]]) -> bool:
    """Return True if forward changes with large steps, and not at all with some small ones."""
    scales = [sample.scale for column in columns for sample in column]
    return any(scales) and not all(scales)


def _agreeing(limits: tuple[Extrapolation, Extrapolation, Extrapolation]) -> Extrapolation:
    """Return the last of three limits, with a floor that covers the others.

    Of many limits, some are near each other by chance.
    """
    *others, last = limits
    distances = [abs(last.value - other.value) for other in others]
    jump = max(each.jump for each in limits)
    floor, rest = max(last.floor, jump, *distances), max(last.rest, *distances)
    return last._replace(floor=floor, jump=jump, rest=rest)


def _best(limits: list[Extrapolation]) -> tuple[Extrapolation, float]:
    """Return the best of limits from ever larger steps, and how far the next finer one is off.

    A function may be flat far away, and look as if its derivative were zero: a contradiction by
    smaller steps, beyond their noise, is part of the floor. But if nothing changes with these
    while larger steps show a smooth function, then forward rounds to few digits.
    """
    smooth = [k for k, limit in enumerate(limits) if limit.floor < SMOOTH * abs(limit.value)]
    if smooth:
        limits = [limit for k, limit in enumerate(limits) if limit.scale or k > smooth[0]]
    best, contradiction = limits[0], 0.0
    for position, limit in enumerate(limits):
        distances = [abs(limit.value - finer.value) - finer.noise for finer in limits[:position]]
        floor, rest = max([limit.floor, *distances]), max([limit.rest, *distances])
        if floor < best.floor or math.isnan(best.value):
            best = limit._replace(floor=floor, rest=rest)
            finer = limits[max(0, position - 1)]
            contradiction = abs(limit.value - finer.value) if math.isfinite(finer.value) else 0.0
    return best, contradiction


def _in_float64(problem: Problem) -> list[Array]:
    """Return the inputs in float64 if forward accepts that: differences are more accurate."""
    wide = [value.astype(np.float64) for value in problem.inputs]
    try:
        problem.outputs(wide)
    except Exception:
        return problem.inputs
    return wide
