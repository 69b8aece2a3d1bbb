"""Noise and resolution: step sizes, units in the last place, and bounds of rounding errors."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.problem import Array, Contributions, Problem

CLOSE = 2.0**-10
"""A distance, relative to the spread, over which most functions are smooth."""
SUSPICIOUS = 2.0**-10
"""Noise above this, relative to a function, may be its curvature."""
MIN_WEIGHT_BITS, MAX_WEIGHT_BITS = 3, 30
PRECISIONS = (8, 11, 24, 53)
"""Significant bits of bfloat16, float16, float32 and float64."""
SMALLEST_SUBNORMAL = 2.0**-1074
LINES = 3
POINTS = range(-6, 6)
ORDERS = (6, 7, 8)
SAFETY = 16.0
DISTANCES = tuple(CLOSE * 8.0**-k for k in range(4))
"""Distances between nearby points relative to the spread, each 8 times smaller than the last."""
SMALLEST_DISTANCES = tuple(DISTANCES[-1] * 32.0**-k for k in range(1, 5))
"""For functions that are curved even at the last of these distances, as sin(1e6*x) is."""
MIN_SHARE_MOVING = 0.9
MIN_ULPS = (16, 48)
FEW_ULPS = (1, 4)
"""Ranges of the smallest steps, in units; the second is for inputs without room for the first. The
steps of elements must differ: if all are 16 units, the rounding error of a sum may not change."""
SHRINKAGE = 16.0
"""High differences of a curved function shrink by more than this from a distance to the next."""

Values = float | NDArray[np.float64]


def spread_of(values: Array) -> float:
    """Return the distance over which a function of these data may be expected to change.

    That is their mean absolute deviation, and not their size: at x = 1e8 with a spread of 1e-3, a
    step proportional to |x| would leave the range of the data.
    """
    largest = float(np.abs(values).max())
    if not largest:
        return 1.0
    unit = 2.0 ** math.floor(math.log2(largest))
    relative = values.astype(np.float64) / unit  # sums would overflow
    return float(np.abs(relative - relative.mean()).mean()) * unit or largest


def least_step(values: Array) -> float:
    """Return a power of two that can be added to every element without rounding."""
    return float(np.spacing(np.abs(values).max() or values.dtype.type(1)))


def weight_bits(values: Array, smallest_step: float) -> int:
    """Return the number of bits of projection weights for exact steps.

    Elements move by steps times weights. Finer weights need larger steps; `smallest_step`,
    relative to the spread, must still be exact.
    """
    room = math.log2(spread_of(values)) + math.log2(smallest_step) - math.log2(least_step(values))
    return min(max(math.floor(room), MIN_WEIGHT_BITS), MAX_WEIGHT_BITS)


def root_sum_square(parts: Contributions) -> float:
    """Return the 2-norm of all elements: dy is random, so that contributions are independent."""
    largest = max((float(each.max()) for each in parts if each.size), default=0.0)
    if not 0 < largest < math.inf:
        return largest
    return largest * math.hypot(*(float(np.linalg.norm(each / largest)) for each in parts))


def output_ulps(problem: Problem, inputs: Sequence[Array]) -> Contributions:
    """Return what a unit in the last place of each output contributes to the loss.

    It is the resolution where forward is flat in its type: there all differences are zero, and so
    is their noise.
    """
    points = (problem.outputs(point) for point in (inputs, *_points_with_all_digits(inputs)))
    ulps = (_ulp(outputs[0], _precision(outputs)) for outputs in zip(*points, strict=True))
    return [np.abs(each) for each in problem.times_dy(ulps)]


def _points_with_all_digits(inputs: Sequence[Array]) -> Iterator[list[Array]]:
    """Yield points near the inputs whose significands are full; that of 1.5 is not."""
    random = np.random.default_rng(0)
    for _ in range(2):
        yield [
            value
            + (CLOSE * spread_of(value) * random.uniform(-1, 1, value.shape)).astype(value.dtype)
            if value.size
            else value
            for value in inputs
        ]


def _ulp(y: Array, bits: int) -> NDArray[np.float64]:
    """Return the unit in the last place of each number, and 0 for zeros."""
    _, exponent = np.frexp(y.astype(np.float64))
    ulp = np.maximum(np.ldexp(1.0, exponent - bits), SMALLEST_SUBNORMAL)
    return np.where((y == 0) | ~np.isfinite(y), 0.0, ulp)


def _precision(outputs: Iterable[Array]) -> int:
    """Return the significant bits of the outputs: fewer than those of their type after a cast."""
    precision = PRECISIONS[0]
    for y in outputs:
        significand, _ = np.frexp(y.astype(np.float64)[np.isfinite(y)])
        for bits, more in pairwise(PRECISIONS):
            scaled = np.ldexp(significand, bits)
            if not (scaled == np.rint(scaled)).all():
                precision = max(precision, more)
    return precision


class Noise(NamedTuple):
    """Bounds of rounding errors.

    `is_flat` is True where nothing varies nearby: errors may be larger there. `coarse` is the
    bound from distant points, which includes curvature and kinks.
    """

    bound: NDArray[np.float64]
    is_flat: NDArray[np.bool_]
    coarse: NDArray[np.float64]


def noise_on_lines(
    value_at: Callable[[int, int], Values], *, must_move: bool = False
) -> NDArray[np.float64]:
    """Bound the rounding errors of a function from its values on straight lines.

    ``value_at(line, point)`` is a number or an array. The points ..., -1, 0, 1, ... lie on both
    sides of 0, since a kink may be there. On a single line all errors may happen to be the same.

    Differences of high order remove a smooth function and amplify noise: the mean square of j-th
    differences of independent errors is (2j)!/(j!)**2 times theirs (Hamming; Moré and Wild,
    Estimating computational noise, 2011). The bound is infinite where a value is not finite. With
    `must_move` it is also infinite where neighbouring values are equal: a function that is flat
    between jumps hides its noise.
    """
    values = np.array([[value_at(line, k) for k in POINTS] for line in range(LINES)], np.float64)
    valid = np.isfinite(values).all(axis=(0, 1))
    if must_move:
        valid &= np.mean(values[:, 1:] != values[:, :-1], axis=(0, 1)) > MIN_SHARE_MOVING
    with np.errstate(all="ignore"):  # where a value is not finite
        size = np.abs(values).max(axis=(0, 1))
        size = np.where(size == 0, 1.0, size)
        differences = values / size  # squares would overflow
        largest = np.zeros(size.shape)
        for order in range(1, max(ORDERS) + 1):
            differences = np.diff(differences, axis=1)
            if order in ORDERS:
                mean_square = np.mean(differences**2, axis=1).max(axis=0)
                growth = math.comb(2 * order, order)
                largest = np.maximum(largest, np.sqrt(mean_square / growth))
        return np.where(valid, SAFETY * largest * size, np.inf)


class NearbyLines:
    """Equally spaced points next to the inputs, on lines in random directions, without rounding.

    The points are so close that the function is smooth between them, and so far apart that its
    rounding errors differ, also those of a mean. Steps of one unit in the last place of each
    element would hardly move a mean.
    """

    def __init__(self, inputs: Sequence[Array], distance: float, *, move_zeros: bool) -> None:
        # Each distance has its own directions: if steps have no room to shrink, the same points
        # would confirm themselves.
        random = np.random.default_rng(round(-math.log2(distance)))
        self._steps = [
            [
                _exact_steps(value, distance, random, move_zeros)
                * random.choice([-1.0, 1.0], value.shape)
                for value in inputs
            ]
            for _ in range(LINES)
        ]

    def point(self, line: int, k: int, inputs: Sequence[Array]) -> list[Array]:
        """Return inputs, real or complex, moved by k steps along a line."""
        return [
            value + (k * step).astype(value.real.dtype)
            for value, step in zip(inputs, self._steps[line], strict=True)
        ]


class NoiseEstimator:
    """Measures rounding errors of functions of the inputs, from points next to these.

    Zeros do not move, since kinks are often there, unless `move_zeros` is set.
    """

    def __init__(self, inputs: Sequence[Array], *, move_zeros: bool = False) -> None:
        self._inputs, self._move_zeros = inputs, move_zeros
        self._lines: dict[float, NearbyLines] = {}

    def noise(
        self,
        function: Callable[[list[Array]], Values],
        inputs: Sequence[Array],
        negligible: Values,
        suspicious: Values,
    ) -> Noise:
        """Bound the rounding errors of a function at `inputs`, which may be complex.

        Curvature looks like noise among distant points, but shrinks with their distance; noise
        does not. At least two distances must show that: at a single one, all rounding errors may
        happen to be the same, also at the largest. Noise up to `negligible` is not measured more
        closely. Noise above `suspicious` is measured most closely, since rounding errors are
        rarely so large.
        """

        def noise_at(distance: float, must_move: bool = False) -> NDArray[np.float64]:
            if distance not in self._lines:
                self._lines[distance] = NearbyLines(
                    self._inputs, distance, move_zeros=self._move_zeros
                )
            point = self._lines[distance].point
            return noise_on_lines(
                lambda line, k: function(point(line, k, inputs)), must_move=must_move
            )

        coarse = noise_at(DISTANCES[0])
        if (coarse <= negligible).all():
            return Noise(coarse, coarse == 0, coarse)
        finer = [noise_at(distance) for distance in DISTANCES[1:]]
        bound = _without_curvature(np.maximum.reduce([coarse, *finer]), finer)
        if not (bound <= suspicious).all():
            finest = [noise_at(distance, must_move=True) for distance in SMALLEST_DISTANCES]
            bound = _without_curvature(bound, finest)
        return Noise(bound, finer[-1] == 0, coarse)


def _without_curvature(
    coarse: NDArray[np.float64], finer: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the noise that remains at two or more of ever smaller distances."""
    bound = coarse
    for k in reversed(range(len(finer) - 1)):
        remaining = np.maximum.reduce(finer[k:])
        bound = np.where(remaining <= coarse / SHRINKAGE, remaining, bound)
    return bound


def _exact_steps(
    values: Array, distance: float, random: np.random.Generator, move_zeros: bool
) -> NDArray[np.float64]:
    """Return small random steps that can be added to each element several times without rounding.

    Sums of equal steps might be exact, too. Steps are several units in the last place if the type
    has room for that.
    """
    if not values.size:
        return np.zeros(values.shape)
    spread = spread_of(values)
    size = np.abs(values).astype(np.float64)
    moved = np.where((size == 0) & move_zeros, spread, size)
    unit = 2 * np.spacing(moved.astype(values.dtype)).astype(np.float64)
    room = np.minimum(moved, spread)
    target = distance * room * random.uniform(0.5, 1.5, size.shape)
    share = np.minimum(CLOSE * room / unit / MIN_ULPS[1], 1.0)
    least = np.maximum(
        share * random.integers(*MIN_ULPS, size.shape), random.integers(*FEW_ULPS, size.shape)
    )
    steps = unit * np.rint(np.maximum(least, target / unit))
    return np.where((size == 0) & (not move_zeros), 0.0, steps)
