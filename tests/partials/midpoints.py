"""Rows with a term that is nearly half-way between two integers of its lattice.

dy is m*2**k with 2**23 <= m < 2**24, so that m*alpha must come near to a half modulo 1. Which m
does so first is found by Euclid's algorithm, as fast as a greatest common divisor.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import isqrt

import numpy as np

from partials.definition import Terms
from promise.families import Array

__all__ = ["first_within", "near_midpoints"]

PLACE = 120
"""Bits behind the point that alpha is known to."""


def first_within(a: int, modulus: int, low: int, high: int) -> int | None:
    """Return the smallest m >= 0 with low <= a*m mod modulus <= high, where low > 0."""
    a %= modulus
    if a == 0:
        return None
    if 2 * a > modulus:
        return first_within(modulus - a, modulus, modulus - high, modulus - low)
    m = -(-low // a)
    if a * m <= high:
        return m
    # Which wrap is the first that has a multiple of a in its window.
    wraps = first_within(a - modulus % a, a, low % a, high % a)
    return None if wraps is None else -(-(low + modulus * wraps) // a)


def near_midpoints(
    random: np.random.Generator, size: int, within: float, *, centred: bool
) -> Iterator[tuple[Array, Array]]:
    """Yield rows x and dy of float32: of one term the fraction is a half, but for `within`."""
    while True:
        x = (random.standard_normal(size) + 100).astype(np.float32)
        slopes = random.uniform(2.0**23, 2.0**24, size).astype(np.float32)
        row = Terms(x.astype(float).tolist(), slopes.astype(float).tolist(), 1e-5, centred)
        for j in range(size):
            m = _multiple(row, j, within)
            if m is not None:
                slopes[j] = m
                yield x, slopes
                break


def _multiple(row: Terms, j: int, within: float) -> int | None:
    """Return the dy in a column that takes its term near to a midpoint."""
    alpha = scaled_term(row, j, Fraction(1), PLACE)
    modulus, half, reach = 2**PLACE, 2 ** (PLACE - 1), int(within * 2**PLACE)
    start = half - (alpha << 23)
    low = (start - reach) % modulus
    found = first_within(alpha, modulus, low, low + 2 * reach) if low else None
    return 2**23 + found if found is not None and found < 2**23 else None


def scaled_term(row: Terms, j: int, dy: Fraction, place: int) -> int:
    """Return |dy*c*r| in units times 2**place, rounded down."""
    assert row.unit is not None
    mean, w = row.mean_and_w
    size = abs(dy * (Fraction(row.x[j]) - mean)) * Fraction(2) ** (place - row.unit)
    square = size * size / w
    return isqrt(square.numerator // square.denominator)
