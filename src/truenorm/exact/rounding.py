"""Correct rounding of a rational number: once, to nearest, ties to even."""

import math

from truenorm.exact.formats import FloatFormat

__all__ = ["round_ratio"]


def round_ratio(numerator: int, denominator: int, target: FloatFormat) -> float:
    """Round numerator/denominator (> 0) to a number of the target type, given as a float.

    Zero gives +0.0, and what is not zero but rounds to it keeps its sign. Every number of the
    four types is a float64, so the float is exact; 2**limit and beyond is infinite.

    Examples
    --------
    >>> from truenorm.exact import FLOAT32
    >>> round_ratio(1, 3, FLOAT32), round_ratio(-1, 2**200, FLOAT32)
    (0.3333333432674408, -0.0)
    """
    if numerator == 0:
        return 0.0
    sign = -1.0 if numerator < 0 else 1.0
    numerator = abs(numerator)
    # The lengths give the exponent of the quotient to within one; the comparison settles it.
    exponent = numerator.bit_length() - denominator.bit_length()
    if numerator << max(0, -exponent) < denominator << max(0, exponent):
        exponent -= 1
    # The last place that the type has at this exponent.
    place = max(exponent - target.precision + 1, target.quantum)
    scaled = numerator << max(0, -place)
    unit = denominator << max(0, place)
    digits, remainder = divmod(scaled, unit)
    if 2 * remainder > unit or (2 * remainder == unit and digits & 1):
        digits += 1
    if digits.bit_length() + place > target.limit:
        return sign * math.inf
    return sign * math.ldexp(digits, place)
