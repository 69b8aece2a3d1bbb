"""How noisy a computed function is, from its values at a few points close to each other."""

import math
from collections.abc import Callable

import numpy as np

__all__ = ["LINES", "noise_of"]

LINES = 3
AROUND = range(-6, 6)
ORDERS = (6, 7, 8)
SAFETY = 16.0


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
