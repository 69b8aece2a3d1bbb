"""How kernels read and write numbers of the four types.

float32 and float64 are themselves. The other two are not types that Numba computes with; they
travel as integers that hold their bits, and the kind of integer says which: int16 for float16,
uint16 for bfloat16. So a kernel is compiled once for each type, by the types of its arrays.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from truenorm.kernels.fused.compiled.elements.halves import half_to_single, single_to_half
from truenorm.kernels.fused.compiling import PART, compiled
from truenorm.kernels.ground import Element

__all__ = [
    "as_bits",
    "decode",
    "decode_single",
    "encode",
    "encode_single",
    "layout",
    "magnitude",
    "nan_like",
    "of_magnitude",
]

HALF_MANTISSA, HALF_BIAS = 10, 15
BRAIN_MANTISSA, BRAIN_BIAS = 7, 127
HALF_NAN, BRAIN_NAN = 0x7E00, 0x7FC0


@compiled
def _brain_to_single(bits: Element) -> Any:
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@compiled
def _single_to_brain(value: Element) -> Any:
    """Round a float32 that is not NaN, to nearest, ties to even: infinity is next to the top."""
    bits = np.float32(value).view(np.uint32)
    tie = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16((bits + np.uint32(0x7FFF) + tie) >> np.uint32(16))


@compiled
def _to_sixteen_bits(value: Element, mantissa: int, bias: int) -> Any:
    """Round a float64 once, to nearest, ties to even; infinity where it overflows."""
    bits = np.float64(value).view(np.int64)
    size = bits & np.int64(0x7FFFFFFFFFFFFFFF)
    cut = np.int64(52 - mantissa)
    rounded = size + (np.int64(1) << (cut - 1)) - 1 + ((size >> cut) & 1)
    normal = (rounded >> cut) - (np.int64(1023 - bias) << np.int64(mantissa))
    # Below the normal range all numbers are multiples of one quantum.
    subnormal = np.int64(np.rint(min(abs(value), 1.0) * 2.0 ** (bias - 1 + mantissa)))
    smallest = np.int64(1) << np.int64(mantissa)
    result = normal if normal >= smallest else subnormal
    infinity = (np.int64(2 * bias + 1)) << np.int64(mantissa)
    return min(result, infinity) | ((bits >> 63) & np.int64(0x8000))


def decode(value: Element) -> Any:
    """Return an element of an array as float64, exactly."""
    return value if isinstance(value, float) else np.float64(decode_single(value))


@overload(decode, strict=False, jit_options=PART)
def _decode(value: Any) -> Any:
    if value == types.float64:
        return lambda value: value
    return lambda value: np.float64(decode_single(value))


def decode_single(value: Element) -> Any:
    """Return an element of at most float32 as that, exactly."""
    if isinstance(value, np.int16):
        return half_to_single(value)
    return _brain_to_single(value) if isinstance(value, np.uint16) else value


@overload(decode_single, strict=False, jit_options=PART)
def _decode_single(value: Any) -> Any:
    if value == types.int16:
        return lambda value: half_to_single(value)
    if value == types.uint16:
        return lambda value: _brain_to_single(value)
    return lambda value: value


def encode(value: Element, like: Element) -> Any:
    """Round a float64 that is not NaN to the type of the element `like`, once."""
    if isinstance(like, np.int16):
        return np.uint16(_to_sixteen_bits(value, HALF_MANTISSA, HALF_BIAS)).view(np.int16)
    if isinstance(like, np.uint16):
        return np.uint16(_to_sixteen_bits(value, BRAIN_MANTISSA, BRAIN_BIAS))
    return type(like)(value)


@overload(encode, strict=False, jit_options=PART)
def _encode(value: Any, like: Any) -> Any:
    if like == types.int16:
        return lambda value, like: np.int16(_to_sixteen_bits(value, HALF_MANTISSA, HALF_BIAS))
    if like == types.uint16:
        return lambda value, like: np.uint16(_to_sixteen_bits(value, BRAIN_MANTISSA, BRAIN_BIAS))
    if like == types.float32:
        return lambda value, like: np.float32(value)
    return lambda value, like: np.float64(value)


def encode_single(value: Element, like: Element) -> Any:
    """Round a float32 that is not NaN to the type of the element `like`."""
    if isinstance(like, np.int16):
        return single_to_half(value)
    return _single_to_brain(value) if isinstance(like, np.uint16) else value


@overload(encode_single, strict=False, jit_options=PART)
def _encode_single(value: Any, like: Any) -> Any:
    if like == types.int16:
        return lambda value, like: single_to_half(value)
    if like == types.uint16:
        return lambda value, like: _single_to_brain(value)
    return lambda value, like: value


def nan_like(like: Element) -> Any:
    """Return NaN in the type of the element `like`."""
    if isinstance(like, np.int16):
        return np.int16(HALF_NAN)
    return np.uint16(BRAIN_NAN) if isinstance(like, np.uint16) else type(like)(np.nan)


@overload(nan_like, strict=False, jit_options=PART)
def _nan_like(like: Any) -> Any:
    if like == types.int16:
        return lambda like: np.int16(HALF_NAN)
    if like == types.uint16:
        return lambda like: np.uint16(BRAIN_NAN)
    return lambda like: np.float32(np.nan)


def as_bits(value: Element) -> Any:
    """Return an element as the integer of its bits: +0 is not -0."""
    if isinstance(value, np.float32):
        return value.view(np.int32)
    if isinstance(value, float):
        return np.float64(value).view(np.int64)
    return np.int32(value)


@overload(as_bits, strict=False, jit_options=PART)
def _as_bits(value: Any) -> Any:
    if value == types.float32:
        return lambda value: np.float32(value).view(np.int32)
    if value == types.float64:
        return lambda value: np.float64(value).view(np.int64)
    return lambda value: np.int32(value)


def magnitude(value: Element) -> Any:
    """Return the bits of |element| as an int32: in order of size, infinity and NaN on top."""
    mask = np.int32(0x7FFFFFFF if isinstance(value, np.float32) else 0x7FFF)
    return as_bits(value) & mask


@overload(magnitude, strict=False, jit_options=PART)
def _magnitude(value: Any) -> Any:
    if value == types.float32:
        return lambda value: np.int32(np.float32(value).view(np.int32) & np.int32(0x7FFFFFFF))
    return lambda value: np.int32(np.int32(value) & np.int32(0x7FFF))


def of_magnitude(bits: int, like: Element) -> Any:
    """Return the element of the type of `like` that has such a magnitude, and is not negative."""
    if isinstance(like, np.int16):
        return np.int16(bits)
    return np.uint16(bits) if isinstance(like, np.uint16) else np.int32(bits).view(np.float32)


@overload(of_magnitude, strict=False, jit_options=PART)
def _of_magnitude(bits: Any, like: Any) -> Any:
    if like == types.int16:
        return lambda bits, like: np.int16(bits)
    if like == types.uint16:
        return lambda bits, like: np.uint16(bits)
    return lambda bits, like: np.int32(bits).view(np.float32)


def layout(like: Element) -> Any:
    """Return how many bits of mantissa an array's narrow type stores, and its bias."""
    if like.dtype == np.int16:
        return HALF_MANTISSA, HALF_BIAS
    return (BRAIN_MANTISSA, BRAIN_BIAS) if like.dtype == np.uint16 else (23, 127)


@overload(layout, strict=False, jit_options=PART)
def _layout(like: Any) -> Any:
    found = {types.int16: (HALF_MANTISSA, HALF_BIAS), types.uint16: (BRAIN_MANTISSA, BRAIN_BIAS)}
    mantissa, bias = found.get(like.dtype, (23, 127))
    return lambda like: (mantissa, bias)
