"""How far to move: the spread of an input, and steps that its numbers can take exactly."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.noise import LINES

__all__ = [
    "CLOSE",
    "MOST_WEIGHT_BITS",
    "Neighbours",
    "least_step",
    "spread_of",
    "surroundings_of",
    "weight_bits",
]

FloatArray = NDArray[np.floating[Any]]

CLOSE = 2.0**-10
"""So far apart, beside the spread, are points between which most functions are smooth."""
LEAST_WEIGHT_BITS, MOST_WEIGHT_BITS = 3, 30


def spread_of(values: FloatArray) -> float:
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


class Neighbours:
    """Points next to the inputs, along random directions: straight lines, exactly.

    They are so close that the function is smooth between them, and so far apart that it makes
    other rounding errors at each: also those of a mean, which a step of one unit in the last
    place of each element would hardly move.
    """

    def __init__(self, inputs: Sequence[FloatArray], distance: float) -> None:
        random = np.random.default_rng(0)
        self._lines = [
            [
                _exact_steps(value, distance, random) * random.choice([-1.0, 1.0], value.shape)
                for value in inputs
            ]
            for _ in range(LINES)
        ]

    def at(self, line: int, k: int, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return inputs, real or complex, moved by k steps along a line."""
        return [
            value + (k * step).astype(value.real.dtype)
            for value, step in zip(inputs, self._lines[line], strict=True)
        ]


def surroundings_of(inputs: Sequence[FloatArray]) -> list[Neighbours]:
    """Return points next to the inputs: as far apart as most functions allow, and nearer."""
    return [Neighbours(inputs, CLOSE * 8.0**-k) for k in range(4)]


def _exact_steps(
    values: FloatArray, distance: float, random: np.random.Generator
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


def least_step(values: FloatArray) -> float:
    """Return a power of two that every element can move by without being rounded."""
    return float(np.spacing(np.abs(values).max() or values.dtype.type(1)))


def weight_bits(values: FloatArray, finest: float) -> int:
    """Return how many bits weights may have where steps of a share of the spread are to be exact.

    Steps times weights are what elements move by: the finer the weights, the larger the steps
    that are exact.
    """
    room = math.log2(spread_of(values)) + math.log2(finest) - math.log2(least_step(values))
    return min(max(math.floor(room), LEAST_WEIGHT_BITS), MOST_WEIGHT_BITS)
