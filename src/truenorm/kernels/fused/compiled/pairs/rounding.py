"""Level 2: pairs, rounded once to one of the four types."""

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from truenorm.kernels.fused.compiled.elements.encoding import as_bits, encode
from truenorm.kernels.fused.compiled.pairs.arithmetic import rounded_to_odd, two_sum
from truenorm.kernels.fused.compiled.pairs.rows import ERROR, Z_HIGH, Z_LOW
from truenorm.kernels.fused.compiling import PART, compiled
from truenorm.kernels.ground import Coded, Element, Flags, Numbers, Pair

__all__ = ["ends", "scaled_ends", "write_rounded"]


def ends(high: float, low: float, bound: float, like: Element) -> Any:
    """Return both ends of the bracket of a pair, rounded; |bound| is far below |high| or E > |z|.

    For float64 results that are in its normal range.
    """
    if isinstance(like, np.float64):
        return high + (low - bound), high + (low + bound)
    return _narrow_ends(high, low, bound, like)


@overload(ends, strict=False, jit_options=PART)
def _ends(high: Any, low: Any, bound: Any, like: Any) -> Any:
    if like == types.float64:
        return lambda high, low, bound, like: (high + (low - bound), high + (low + bound))
    return lambda high, low, bound, like: _narrow_ends(high, low, bound, like)


@compiled
def _narrow_ends(high: float, low: float, bound: float, like: Element) -> Any:
    return (
        encode(rounded_to_odd(high, low - bound), like),
        encode(rounded_to_odd(high, low + bound), like),
    )


@compiled
def write_rounded(work: Numbers, out: Coded, refused: Flags) -> Any:
    """Round the results of a chunk; return how many are refused, and which."""
    like = out[0]
    for j in range(out.shape[0]):
        lower, upper = ends(work[j + Z_HIGH], work[j + Z_LOW], work[j + ERROR], like)
        out[j] = lower
        refused[j] = as_bits(lower) != as_bits(upper)
    left = 0
    for j in range(out.shape[0]):
        left += refused[j]
    return left


@compiled
def scaled_ends(high: float, low: float, bound: float, exponent: int, like: Element) -> Any:
    """Return both ends of the bracket of a pair times 2**exponent, rounded, whatever its size."""
    return (
        _round_scaled(two_sum(high, low - bound), exponent, like),
        _round_scaled(two_sum(high, low + bound), exponent, like),
    )


def _round_scaled(pair: Pair, exponent: int, like: Element) -> Any:
    """Round a normalized pair times 2**exponent."""
    if isinstance(like, np.float64):
        return _round_to_float64(pair, exponent)
    return _round_to_narrow(pair, exponent, like)


@overload(_round_scaled, strict=False, jit_options=PART)
def _round_scaled_compiled(pair: Any, exponent: Any, like: Any) -> Any:
    if like == types.float64:
        return lambda pair, exponent, like: _round_to_float64(pair, exponent)
    return lambda pair, exponent, like: _round_to_narrow(pair, exponent, like)


@compiled
def _round_to_narrow(pair: Pair, exponent: int, like: Element) -> Any:
    """Round to at most float32: what float64 cannot hold is beyond its ends, too."""
    return encode(np.ldexp(rounded_to_odd(pair[0], pair[1]), _clipped(exponent)), like)


@compiled
def _round_to_float64(pair: Pair, exponent: int) -> Any:
    """Round to a multiple of the last place that a number of this size has.

    In units of that place, whether the remainder is below, at or above one half is decided
    exactly, ties to even.
    """
    high, low = pair
    mantissa, size = math.frexp(high)
    if abs(mantissa) == 0.5 and low * high < 0:
        size -= 1  # just below a power of two the last place is half as large
    place = max(size + exponent - 53, -1074)
    shift = _clipped(exponent - place)
    whole = np.ldexp(high, shift)
    digits = np.rint(whole)
    rest = whole - digits
    part = np.ldexp(low, shift)
    remainder = rest + part
    error = part - (remainder - rest)  # |rest| is 0 or at least |part|, or digits are settled
    odd = np.rint(digits / 2) != digits / 2
    if remainder > 0.5 or (remainder == 0.5 and (error > 0 or (error == 0 and odd))):
        digits += 1.0
    elif remainder < -0.5 or (remainder == -0.5 and (error < 0 or (error == 0 and odd))):
        digits -= 1.0
    if digits == 0:
        digits = math.copysign(digits, high)
    return np.ldexp(digits, _clipped(place))


@compiled
def _clipped(exponent: int) -> Any:
    """Return the exponent as ldexp takes it; beyond these limits all results are the same."""
    return int(min(max(exponent, -2200), 2200))
