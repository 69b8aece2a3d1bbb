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

Float64 = NDArray[np.float64]

UNSIGNED = {2: np.uint16, 4: np.uint32, 8: np.uint64}


class Tested(NamedTuple):
    """Results in storage form, and the elements that the rounding test did not decide."""

    values: Stored
    undecided: NDArray[np.bool_]


def same_roundings(lower: Stored, upper: Stored) -> Tested:
    """Decide the elements whose two ends have the same bits: +0 is not -0."""
    unsigned = UNSIGNED[lower.dtype.itemsize]
    return Tested(lower, lower.view(unsigned) != upper.view(unsigned))


def round_to(values: Float64, target: FloatFormat) -> Stored:
    """Round float64 values to the nearest numbers of a type, ties to even."""
    if target is BFLOAT16:
        return _round_to_bfloat16(values)
    return values.astype(target.name)


@cache
def canonical_nan(target: FloatFormat) -> Any:
    """Return the positive quiet NaN of payload 0, in storage form."""
    return round_to(np.array(np.nan), target)[()]


def round_pair(
    high: Float64, low: Float64, exponent: NDArray[np.integer], target: FloatFormat
) -> Stored:
    """Round (high + low)*2**exponent once. The pair must be normalized.

    The result is significand*2**place, where place is that of the last bit the format has for a
    number of this size. In units of 2**place the pair is rounded to an integer; the remainder is
    compared with one half exactly.
    """
    mantissa, size = np.frexp(high)
    # Just below a power of two the last place is half as large.
    size = size - ((np.abs(mantissa) == 0.5) & (low * high < 0))
    place = np.maximum(size + exponent - target.precision, target.quantum)
    shift = np.clip(exponent - place, -2200, 2200).astype(np.int32)
    whole = np.ldexp(high, shift)
    significand = np.rint(whole)
    rest = whole - significand
    part = np.ldexp(low, shift)
    remainder = rest + part
    # Exact: |rest| is 0 or at least |part|, or the significand is right without it.
    error = part - (remainder - rest)
    significand = significand + _carry(remainder, error, significand)
    significand = np.where(significand == 0, np.copysign(significand, high), significand)
    values = np.ldexp(significand, np.minimum(place, 2000).astype(np.int32))
    if target.limit < 1024:
        values = np.where(np.abs(values) >= 2.0**target.limit, np.copysign(np.inf, values), values)
    return round_to(values, target)


def _carry(remainder: Float64, error: Float64, significand: Float64) -> Float64:
    """Return the 1, 0 or -1 that remainder + error adds to the significand, ties to even."""
    odd = np.fmod(significand, 2) != 0
    up = (remainder > 0.5) | ((remainder == 0.5) & ((error > 0) | ((error == 0) & odd)))
    down = (remainder < -0.5) | ((remainder == -0.5) & ((error < 0) | ((error == 0) & odd)))
    carry: Float64 = up.astype(np.float64) - down
    return carry


def _round_to_bfloat16(values: Float64) -> NDArray[np.uint16]:
    """Round to odd on the way to float32: two roundings to nearest are not one."""
    nearest = values.astype(np.float32)
    back = nearest.astype(np.float64)
    bits = nearest.view(np.uint32)
    # Round towards zero, then set the last bit if the value was not exact.
    bits = (bits - (np.abs(back) > np.abs(values))) | (back != values)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded.astype(np.uint16))
