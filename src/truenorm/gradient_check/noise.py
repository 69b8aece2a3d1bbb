"""How far to move: the spread of an input, and steps that its numbers can take exactly."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.problem import Array, Problem, Shares

CLOSE = 2.0**-10
"""So far apart, beside the spread, are points between which most functions are smooth."""
VAGUE = 2.0**-10
"""Noise above this, beside a function, may be its curvature."""
LEAST_WEIGHT_BITS, MOST_WEIGHT_BITS = 3, 30


def spread_of(values: Array) -> float:
    """Return the distance over which a function of these data may be expected to change.

    That is their spread, not their size: at x = 1e8 with a spread of 1e-3, a step scaled by |x|
    would leave the function.
    """
    largest = float(np.abs(values).max())
    if not largest:
        return 1.0
    unit = 2.0 ** math.floor(math.log2(largest))
    relative = values.astype(np.float64) / unit  # sums would overflow
    return float(np.abs(relative - relative.mean()).mean()) * unit or largest


def least_step(values: Array) -> float:
    """Return a power of two that every element can move by without being rounded."""
    return float(np.spacing(np.abs(values).max() or values.dtype.type(1)))


def weight_bits(values: Array, finest: float) -> int:
    """Return how many bits weights may have where steps of a share of the spread are to be exact.

    Steps times weights are what elements move by: the finer the weights, the larger the steps
    that are exact.
    """
    room = math.log2(spread_of(values)) + math.log2(finest) - math.log2(least_step(values))
    return min(max(math.floor(room), LEAST_WEIGHT_BITS), MOST_WEIGHT_BITS)


PRECISIONS = (8, 11, 24, 53)
"""Of bfloat16, float16, float32 and float64, in bits."""
LEAST = 2.0**-1074


def last_places(problem: Problem, inputs: Sequence[Array]) -> Shares:
    """Return what a unit in the last place of each output is in the loss, sum(dy*y).

    Where forward is flat in its type, all differences are zero, and so is their noise: what there
    is to see is then a unit in the last place, and no less.
    """
    points = (problem.outputs(point) for point in (inputs, *_near(inputs)))
    units = (_last_place(outputs[0], _bits_used(outputs)) for outputs in zip(*points, strict=True))
    return [np.abs(share) for share in problem.weighted(units)]


def norm_of(units: Shares) -> float:
    """Add up units as independent ones, which they are since dy is random."""
    largest = max((float(each.max()) for each in units if each.size), default=0.0)
    if not 0 < largest < math.inf:
        return largest
    return largest * math.hypot(*(float(np.linalg.norm(each / largest)) for each in units))


def _near(inputs: Sequence[Array]) -> Iterator[list[Array]]:
    """Yield points near the inputs whose numbers have all their digits, which 1.5 has not."""
    random = np.random.default_rng(0)
    for _ in range(2):
        yield [
            value
            + (CLOSE * spread_of(value) * random.uniform(-1, 1, value.shape)).astype(value.dtype)
            if value.size
            else value
            for value in inputs
        ]


def _last_place(y: Array, bits: int) -> NDArray[np.float64]:
    """Return the unit in the last place of each number, and 0 of a zero."""
    _, exponent = np.frexp(y.astype(np.float64))
    unit = np.maximum(np.ldexp(1.0, exponent - bits), LEAST)
    return np.where((y == 0) | ~np.isfinite(y), 0.0, unit)


def _bits_used(outputs: Iterable[Array]) -> int:
    """Return the precision that numbers have, which may be less than that of their type.

    A forward may round to a narrower type inside. Its results show that: none has more bits.
    """
    least = PRECISIONS[0]
    for y in outputs:
        mantissa, _ = np.frexp(y.astype(np.float64)[np.isfinite(y)])
        for bits, more in pairwise(PRECISIONS):
            scaled = np.ldexp(mantissa, bits)
            if not (scaled == np.rint(scaled)).all():
                least = max(least, more)
    return least


LINES = 3
AROUND = range(-6, 6)
ORDERS = (6, 7, 8)
SAFETY = 16.0
DISTANCES = tuple(CLOSE * 8.0**-k for k in range(4))
"""Of neighbouring points, relative to the spread: each 8 times closer than the one before."""
CLOSEST = tuple(DISTANCES[-1] * 32.0**-k for k in range(1, 5))
"""For functions that are curved even at the last of these distances, as sin(1e6*x) is."""
MOSTLY = 0.9
FEWEST_UNITS = (16, 48)
"""A step of one unit in the last place after the other hides rounding errors."""
SHRINKS = 16.0
"""High differences of a curved function shrink by more, from one distance to the next."""

Values = float | NDArray[np.float64]


class Noise(NamedTuple):
    """Bounds of rounding errors.

    `is_flat` where nothing varies nearby: errors may be larger there. `far` is what farther points
    show, curvature and kinks included.
    """

    bound: NDArray[np.float64]
    is_flat: NDArray[np.bool_]
    far: NDArray[np.float64]


def noise_of(
    value_at: Callable[[int, int], Values], *, must_move: bool = False
) -> NDArray[np.float64]:
    """Bound the rounding errors of a function: value_at(line, point) is a number or an array.

    The points ..., -1, 0, 1, ... are on a straight line, on both sides of 0 since a kink may be
    there. There are several lines, since on one of them all errors may happen to be the same.

    Differences of high order make a smooth function vanish and noise grow: of j-th differences of
    independent errors the mean square is (2j)!/(j!)**2 times theirs (Hamming; Moré and Wild,
    Estimating computational noise, 2011). The bound is infinite where a value is not finite; with
    `must_move` also where neighbouring values are equal, since a function that is flat between
    jumps hides its noise.
    """
    values = np.array([[value_at(i, k) for k in AROUND] for i in range(LINES)], np.float64)
    seen = np.isfinite(values).all(axis=(0, 1))
    if must_move:
        seen &= np.mean(values[:, 1:] != values[:, :-1], axis=(0, 1)) > MOSTLY
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
        return np.where(seen, SAFETY * largest * size, np.inf)


class Neighbours:
    """Points next to the inputs, along random directions: straight lines, exactly.

    They are so close that the function is smooth between them, and so far apart that it makes
    other rounding errors at each: also those of a mean, which a step of one unit in the last
    place of each element would hardly move.
    """

    def __init__(
        self, inputs: Sequence[Array], distance: float, *, move_zeros: bool = False
    ) -> None:
        random = np.random.default_rng(0)
        self._lines = [
            [
                _exact_steps(value, distance, random, move_zeros)
                * random.choice([-1.0, 1.0], value.shape)
                for value in inputs
            ]
            for _ in range(LINES)
        ]

    def at(self, line: int, k: int, inputs: Sequence[Array]) -> list[Array]:
        """Return inputs, real or complex, moved by k steps along a line."""
        return [
            value + (k * step).astype(value.real.dtype)
            for value, step in zip(inputs, self._lines[line], strict=True)
        ]


class Surroundings:
    """Points next to the inputs: as far apart as most functions allow, and nearer.

    Zeros stay where they are, since kinks are often there, unless `move_zeros` is set.
    """

    def __init__(self, inputs: Sequence[Array], *, move_zeros: bool = False) -> None:
        self._inputs, self._move_zeros = inputs, move_zeros
        self._neighbours: dict[float, Neighbours] = {}

    def noise(
        self,
        function: Callable[[list[Array]], Values],
        inputs: Sequence[Array],
        negligible: Values,
        vague: Values,
    ) -> Noise:
        """Bound the rounding errors of a function of the inputs, real or complex.

        Where the function is curved, points far apart look like noise, and the nearer they are,
        the less. What does not shrink is noise. Two distances at least must show that: among
        points at one, rounding errors may happen to be all the same.

        Parameters
        ----------
        function : callable
            Returns a number or an array at inputs that were moved.
        inputs : sequence of ndarray
            The inputs themselves, or complex numbers that move with them.
        negligible, vague : float or ndarray
            Noise below `negligible` is not looked at more closely; noise above `vague` is looked
            at most closely, since hardly any rounding errors are so large.
        """

        def among(distance: float, must_move: bool = False) -> NDArray[np.float64]:
            if distance not in self._neighbours:
                self._neighbours[distance] = Neighbours(
                    self._inputs, distance, move_zeros=self._move_zeros
                )
            at = self._neighbours[distance].at
            return noise_of(lambda line, k: function(at(line, k, inputs)), must_move=must_move)

        far = among(DISTANCES[0])
        if (far <= negligible).all():
            return Noise(far, far == 0, far)
        nearer = [among(distance) for distance in DISTANCES[1:]]
        bound = _not_shrinking(far, nearer)
        if not (bound <= vague).all():
            closest = [among(distance, must_move=True) for distance in CLOSEST]
            bound = _not_shrinking(bound, closest)
        return Noise(bound, nearer[-1] == 0, far)


def _not_shrinking(
    far: NDArray[np.float64], nearer: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return what remains of noise at ever nearer distances, at two of them at least."""
    bound = far
    for k in reversed(range(len(nearer) - 1)):
        closest = np.maximum.reduce(nearer[k:])
        bound = np.where(closest <= far / SHRINKS, closest, bound)
    return bound


def _exact_steps(
    values: Array, distance: float, random: np.random.Generator, move_zeros: bool
) -> NDArray[np.float64]:
    """Return small steps that each element can take several of without being rounded.

    They are random, since sums of equal steps may happen to be exact, too: of some units at least,
    where the type has room for that.
    """
    if not values.size:
        return np.zeros(values.shape)
    spread = spread_of(values)
    size = np.abs(values).astype(np.float64)
    moved = np.where((size == 0) & move_zeros, spread, size)
    unit = 2 * np.spacing(moved.astype(values.dtype)).astype(np.float64)
    room = np.minimum(moved, spread)
    wanted = distance * room * random.uniform(0.5, 1.5, size.shape)
    least = np.clip(CLOSE * room / unit, 1.0, random.integers(*FEWEST_UNITS, size.shape))
    steps = unit * np.rint(np.maximum(least, wanted / unit))
    return np.where((size == 0) & (not move_zeros), 0.0, steps)
