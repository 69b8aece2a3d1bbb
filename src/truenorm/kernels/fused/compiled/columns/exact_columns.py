"""Sums of columns in integers, without any error: for dbeta where a pair cannot hold it.

A float64 is cut into digits of 32 bits at fixed places, and each place is summed as an int64.
Integer addition is associative: neither the order of the rows nor who adds them can matter.
"""

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode
from truenorm.kernels.fused.compiled.pairs.arithmetic import two_sum
from truenorm.kernels.fused.compiling import kernel
from truenorm.kernels.ground import Coded, Columns, Integers, Numbers

__all__ = ["add_digits", "as_pairs"]

BITS = 32
LOWEST = -1074
"""The exponent of the lowest bit of the lowest place."""


@kernel
def add_digits(dy: Coded, columns: Columns, first: int, digits: Integers) -> None:
    """Add some columns of at most 2**31 rows to digits[place - first, number of the column].

    What is not finite is left out.
    """
    mask = np.int64(0xFFFFFFFF)
    for i in range(dy.shape[0]):
        for j in range(digits.shape[1]):
            value = decode(dy[i, columns[j]])
            if value == 0 or not abs(value) < np.inf:
                continue
            bits = np.float64(value).view(np.int64)
            position = (bits >> 52) & np.int64(0x7FF)
            mantissa = bits & np.int64(0xFFFFFFFFFFFFF)
            if position > 0:  # not subnormal
                mantissa |= np.int64(1) << np.int64(52)
                position -= 1
            place, shift = position // BITS - first, position % BITS
            low = (mantissa & mask) << shift
            high = ((mantissa >> BITS) << shift) + (low >> BITS)
            sign = -1 if value < 0 else 1
            digits[place, j] += sign * (low & mask)
            digits[place + 1, j] += sign * (high & mask)
            digits[place + 2, j] += sign * (high >> BITS)


@kernel
def as_pairs(
    first: int, digits: Integers, high: Numbers, low: Numbers, exponents: Integers
) -> None:
    """Write the sums as pairs times a power of two, which round as the sums do.

    A pair holds three digits. What is below them matters by its sign only, which is put at the
    end of the pair. The digits are used up.
    """
    places = digits.shape[0]
    half = np.int64(1) << np.int64(BITS - 1)
    for j in range(digits.shape[1]):
        carry = np.int64(0)
        for place in range(places):  # now every digit lies between -half and half
            value = digits[place, j] + carry
            carry = (value + half) >> BITS
            digits[place, j] = value - (carry << BITS)
        place = places
        s, e = np.float64(carry), 0.0
        while s == 0 and place > 0:
            place -= 1
            s = np.float64(digits[place, j])
        for _ in range(2):
            place -= 1
            digit = np.float64(digits[place, j]) if place >= 0 else 0.0
            s, e = two_sum(s * 2.0**BITS, e * 2.0**BITS + digit)
        sign = 0.0
        for below in range(place - 1, -1, -1):
            if digits[below, j] != 0:
                sign = 1.0 if digits[below, j] > 0 else -1.0
                break
        high[j], low[j] = s, e + sign * 2.0**-8
        exponents[j] = (place + first) * BITS + LOWEST if s != 0 else 0
