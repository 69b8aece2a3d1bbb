"""How noisy a computed function is, from its values at a few points close to each other."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

__all__ = ["LINES", "noise_among", "noise_of"]

Points = TypeVar("Points")

LINES = 3
AROUND = range(-6, 6)
ORDERS = (6, 7, 8)
SAFETY = 16.0
SHRINKS = 16.0
"""High differences of what is curved shrink by more, from one distance to an eighth of it."""


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


def noise_among(
    surroundings: Sequence[Points],
    value_at: Callable[[Points, int, int], float],
    negligible: float,
) -> float:
    """Bound the rounding errors of a function from points at several distances, far ones first.

    Where it is curved, points far apart look like noise, and the nearer they are, the less. What
    does not shrink is noise. Two distances at least must say so: among points at one, rounding
    errors may happen to be all the same.
    """
    first, *nearer = surroundings
    noise = noise_of(partial(value_at, first))
    if noise <= negligible:
        return noise
    found = [noise_of(partial(value_at, points)) for points in nearer]
    shrunk = (max(found[k:]) for k in range(len(found) - 1))
    return next((each for each in shrunk if each <= noise / SHRINKS), noise)
