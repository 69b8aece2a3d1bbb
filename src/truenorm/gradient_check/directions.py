"""Where an input is moved to: along one element, or along all of them at once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Direction", "along_element", "moved", "projection"]


class Direction(NamedTuple):
    """Which input moves, and where to; every number of `step` is a multiple of `grain`."""

    which: int
    step: NDArray[np.float64]
    grain: float


def along_element(which: int, shape: tuple[int, ...], index: tuple[int, ...]) -> Direction:
    """Return the unit vector of one element."""
    step = np.zeros(shape)
    step[index] = 1.0
    return Direction(which, step, 1.0)


def projection(
    which: int, shape: tuple[int, ...], bits: int, random: np.random.Generator
) -> Direction:
    """Return random weights of magnitude 1 to 2 and either sign: multiples of 2**-bits.

    Signs alone would let two errors of the same size cancel in every other projection. With these
    weights v, an error e of the gradient is missed with a probability of at most
    t/max|e| + 2**(-bits - 1) where ``|<e, v>| <= t`` passes: whatever the other elements add up
    to, the weight of the largest error must lie in an interval of length 2*t/max|e|, and it is
    drawn from two intervals of length 1. An error in one element alone is never missed where it
    is above t, since no weight is below 1.
    """
    grain = 2.0**-bits
    magnitude = 1 + grain * random.integers(0, 2**bits, shape)
    # Of no dimensions, what is drawn is a plain number.
    step = np.asarray(magnitude * random.choice([-1.0, 1.0], shape))
    return Direction(which, step, grain)


def moved(
    arguments: Sequence[NDArray[Any]], direction: Direction, by: complex
) -> list[NDArray[Any]]:
    """Return the arguments with one of them moved along the direction, in its own type."""
    found = list(arguments)
    value = found[direction.which]
    found[direction.which] = value + (by * direction.step).astype(value.dtype)
    return found
