"""How noisy a computed function is, from its values at a few points close to each other."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.problem import Array
from truenorm.gradient_check.sight.steps import CLOSE, spread_of

__all__ = ["LINES", "Neighbours", "Noise", "Surroundings", "noise_of"]

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
