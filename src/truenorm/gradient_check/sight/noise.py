"""How noisy a computed function is, from its values at a few points close to each other."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.problem import Array
from truenorm.gradient_check.sight.steps import CLOSE, spread_of

__all__ = ["LINES", "Neighbours", "Surroundings", "noise_of"]

LINES = 3
AROUND = range(-6, 6)
ORDERS = (6, 7, 8)
SAFETY = 16.0
NEARER = 8.0
"""Points are so many times closer from one distance to the next."""
SHRINKS = 16.0
"""High differences of what is curved shrink by more, from one distance to the next."""


def noise_of(value_at: Callable[[int, int], float]) -> float:
    """Bound the rounding errors of a function by what is rough about it: value_at(line, point).

    The points ..., -1, 0, 1, ... are on a straight line, on both sides of 0 since a kink may be
    there. There are several lines, since on one of them all errors may happen to be the same.

    Differences of high order make a smooth function vanish and noise grow: of j-th differences of
    independent errors the mean square is (2j)!/(j!)**2 times theirs (Hamming; Moré and Wild,
    Estimating computational noise, 2011).
    """
    differences = np.array([[value_at(i, k) for k in AROUND] for i in range(LINES)])
    if not np.isfinite(differences).all():
        return math.inf
    size = float(np.abs(differences).max()) or 1.0
    differences /= size  # squares would overflow
    largest = 0.0
    for order in range(1, max(ORDERS) + 1):
        differences = np.diff(differences, axis=1)
        if order in ORDERS:
            growth = math.comb(2 * order, order)
            mean_square = float(np.mean(differences**2, axis=1).max())
            largest = max(largest, math.sqrt(mean_square / growth))
    return SAFETY * largest * size


class Neighbours:
    """Points next to the inputs, along random directions: straight lines, exactly.

    They are so close that the function is smooth between them, and so far apart that it makes
    other rounding errors at each: also those of a mean, which a step of one unit in the last
    place of each element would hardly move.
    """

    def __init__(self, inputs: Sequence[Array], distance: float) -> None:
        random = np.random.default_rng(0)
        self._lines = [
            [
                _exact_steps(value, distance, random) * random.choice([-1.0, 1.0], value.shape)
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
    """Points next to the inputs: as far apart as most functions allow, and nearer."""

    def __init__(self, inputs: Sequence[Array]) -> None:
        self._far, *self._nearer = (Neighbours(inputs, CLOSE * NEARER**-k) for k in range(4))

    def noise(
        self, function: Callable[[list[Array]], float], inputs: Sequence[Array], negligible: float
    ) -> float:
        """Bound the rounding errors of a function of the inputs, real or complex.

        Where it is curved, points far apart look like noise, and the nearer they are, the less.
        What does not shrink is noise. Two distances at least must say so: among points at one,
        rounding errors may happen to be all the same.
        """

        def among(points: Neighbours) -> float:
            return noise_of(lambda line, k: function(points.at(line, k, inputs)))

        noise = among(self._far)
        if noise <= negligible:
            return noise
        found = [among(points) for points in self._nearer]
        shrunk = (max(found[k:]) for k in range(len(found) - 1))
        return next((each for each in shrunk if each <= noise / SHRINKS), noise)


def _exact_steps(
    values: Array, distance: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """Return small steps that each element can take several of without being rounded.

    They are random, since sums of equal steps may happen to be exact, too. A zero stays: it has no
    digits to lose, and is where kinks are.
    """
    if not values.size:
        return np.zeros(values.shape)
    size = np.abs(values).astype(np.float64)
    unit = 2 * np.spacing(np.abs(values)).astype(np.float64)
    near = distance * np.minimum(size, spread_of(values))
    wanted = near * random.uniform(0.5, 1.5, size.shape)
    return np.where(size == 0, 0.0, unit * np.maximum(1.0, np.rint(wanted / unit)))
