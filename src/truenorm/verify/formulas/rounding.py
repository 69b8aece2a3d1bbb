"""Rounding to a type: single numbers, sums, and numbers that float32 arithmetic has moved."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, ulps_of, unit_roundoff

MOST_ROWS = 2**13
OTHER_PRECISIONS = {"TF32": 11, "12 bits": 12}
"""Formats with the range of float32 that no array has, and their significant bits."""


def to_bits(values: Float64s, bits: int, rounding: Callable[[Float64s], Float64s]) -> Float64s:
    """Round to so many significant bits, with the range of float64."""
    with np.errstate(all="ignore"):
        fractions, exponents = np.frexp(values)
        return np.asarray(np.ldexp(rounding(np.ldexp(fractions, bits)), exponents - bits))


def rounded(values: Float64s, kind: str) -> Float64s:
    """Round to a type; numbers beyond its range become infinite."""
    if kind in OTHER_PRECISIONS:
        return to_bits(values, OTHER_PRECISIONS[kind], np.rint)
    with np.errstate(all="ignore"):
        finite = np.where(np.isfinite(values), values, 0.0)
        ulps = ulps_of(finite, kind)
        near = np.rint(finite / ulps) * ulps
        beyond = np.abs(near) >= np.ldexp(1.0, FORMATS[kind].limit)
        near = np.where(beyond, np.copysign(np.inf, near), near)
    return np.where(np.isfinite(values), near, values)


def truncated(values: Float64s, kind: str) -> Float64s:
    """Round to a type toward zero."""
    ulps = ulps_of(np.where(np.isfinite(values), values, 0.0), kind)
    return np.asarray(np.trunc(values / ulps) * ulps)


def accumulate_rows(terms: Float64s, kind: str) -> Float64s:
    """Sum unrounded rows, with each partial sum rounded to a type; NaN beyond `MOST_ROWS`."""
    if len(terms) > MOST_ROWS:  # it would take too long
        return np.full(terms.shape[1], np.nan)
    total: Array = np.zeros(terms.shape[1], dtype_of(kind))
    for row in terms:
        total = (total.astype(np.float64) + row).astype(total.dtype)
    return total.astype(np.float64)


def float32_noise(size: int) -> float:
    """Return the relative error of float32 arithmetic that sums `size` terms.

    In sums that are added one by one, Welford's among them, rounding errors add up like a root.
    """
    return (32 + math.sqrt(size)) * unit_roundoff("float32")


def operation_error(values: Float64s) -> Float64s:
    """Return the rounding error of one operation in float32; 0 where its result is exact."""
    exact = values.astype(np.float32) == values
    return np.where(exact, 0.0, unit_roundoff("float32") * np.abs(values))


def round_decided(
    values: Float64s, noise: Float64s, kind: str
) -> tuple[Float64s, NDArray[np.bool_]]:
    """Round to a type, ties to even; also return where the noise cannot change the result."""
    if FORMATS[kind].precision < FORMATS["float32"].precision:  # numbers are in float32 before
        noise = noise + operation_error(values)
    ulps = ulps_of(values, kind)
    rounded = np.rint(values / ulps) * ulps
    low, high = (np.rint((values + shift) / ulps) for shift in (-noise, noise))
    return rounded, np.asarray(low == high)
