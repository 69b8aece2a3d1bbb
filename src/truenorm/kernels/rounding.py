"""Correct rounding to the four types, and the rounding test.

A value known as z with an error of at most E is rounded correctly if z - E and z + E round to the
same number: then so does everything between them (Ziv).
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import BFLOAT16, FloatFormat
from truenorm.kernels.rows import Stored

__all__ = ["Tested", "canonical_nan", "round_pair", "round_to", "same_roundings"]

Float64 = NDArray[np.float64]

UNSIGNED = {2: np.uint16, 4: np.uint32, 8: np.uint64}


class Tested(NamedTuple):
    """Results as held, and which of them the rounding test undecided."""

    values: Stored
    undecided: NDArray[np.bool_]


def same_roundings(lower: Stored, upper: Stored) -> Tested:
    """Accept what is the same from both ends, as bit patterns: +0 is not -0."""
    unsigned = UNSIGNED[lower.dtype.itemsize]
    return Tested(lower, lower.view(unsigned) != upper.view(unsigned))


def round_to(values: Float64, target: FloatFormat) -> Stored:
    """Round float64 values to the nearest numbers of a type, ties to even."""
    if target is BFLOAT16:
        return _round_to_bfloat16(values)
    return values.astype(target.name)


@cache
def canonical_nan(target: FloatFormat) -> Any:
    """Return the positive quiet NaN of payload 0, as held."""
    return round_to(np.array(np.nan), target)[()]


def round_pair(
    high: Float64, low: Float64, exponent: NDArray[np.integer], target: FloatFormat
) -> Stored:
    """Round (high + low)*2**exponent once; the pair is normalized, the exponent may be any.

    The result is digits*2**place, where place is that of the last bit the type has for a number
    of this size. In units of 2**place the pair is rounded to an integer; whether the remainder
    is below, at or above one half is decided exactly.
    """
    mantissa, size = np.frexp(high)
    # Just below a power of two the last place is half as large.
    size = size - ((np.abs(mantissa) == 0.5) & (low * high < 0))
    place = np.maximum(size + exponent - target.precision, target.quantum)
    shift = np.clip(exponent - place, -2200, 2200).astype(np.int32)
    whole = np.ldexp(high, shift)
    digits = np.rint(whole)
    rest = whole - digits
    part = np.ldexp(low, shift)
    remainder = rest + part
    error = part - (remainder - rest)  # |rest| is 0 or at least |part|, or digits are settled
    digits = digits + _carry(remainder, error, digits)
    digits = np.where(digits == 0, np.copysign(digits, high), digits)
    values = np.ldexp(digits, np.minimum(place, 2000).astype(np.int32))
    if target.limit < 1024:
        values = np.where(np.abs(values) >= 2.0**target.limit, np.copysign(np.inf, values), values)
    return round_to(values, target)


def _carry(remainder: Float64, error: Float64, digits: Float64) -> Float64:
    """Return 1, 0 or -1: what remainder + error adds to the digits, ties to even."""
    odd = np.fmod(digits, 2) != 0
    up = (remainder > 0.5) | ((remainder == 0.5) & ((error > 0) | ((error == 0) & odd)))
    down = (remainder < -0.5) | ((remainder == -0.5) & ((error < 0) | ((error == 0) & odd)))
    carry: Float64 = up.astype(np.float64) - down
    return carry


def _round_to_bfloat16(values: Float64) -> NDArray[np.uint16]:
    """Round to odd on the way to float32, because two roundings to nearest are not one."""
    nearest = values.astype(np.float32)
    back = nearest.astype(np.float64)
    bits = nearest.view(np.uint32)
    # Towards zero, then the last bit says that something was cut off.
    bits = (bits - (np.abs(back) > np.abs(values))) | (back != values)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded.astype(np.uint16))
