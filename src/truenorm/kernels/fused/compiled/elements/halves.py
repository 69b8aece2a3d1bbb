"""float16 by the processor's own conversion, through LLVM's half, where it has one.

Where it has none LLVM would call a function that may not be there: then it is done in integers.
"""

import platform
from typing import Any

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import config
from numba.extending import intrinsic

from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Element

__all__ = ["half_to_single", "single_to_half"]


def _is_native() -> bool:
    """Tell whether kernels are compiled for a processor that converts float16."""
    asked = ("DISABLE_JIT", "CPU_NAME", "CPU_FEATURES")
    if any(getattr(config, name, None) for name in asked):
        return False  # a processor that was asked for by name is not looked at
    if platform.machine() in {"aarch64", "arm64"}:
        return True
    return bool(binding.get_host_cpu_features().get("f16c", False))


def _extend(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    half = builder.bitcast(arguments[0], ir.HalfType())
    return builder.fpext(half, ir.FloatType())


def _truncate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    half = builder.fptrunc(arguments[0], ir.HalfType())
    return builder.bitcast(half, ir.IntType(16))


@intrinsic
def _native_to_single(typing_context: Any, bits: Any) -> Any:
    return types.float32(types.int16), _extend


@intrinsic
def _native_to_half(typing_context: Any, value: Any) -> Any:
    return types.int16(types.float32), _truncate


@compiled
def _integers_to_single(bits: Element) -> Any:
    magnitude = np.uint32(np.uint16(bits) & np.uint16(0x7FFF)) << np.uint32(13)
    # The exponent of float16 read as one of float32 is 112 too small; subnormals come out right.
    value = np.float32(np.uint32(magnitude).view(np.float32) * np.float32(2.0**112))
    if magnitude >= np.uint32(0x0F800000):
        value = np.float32(np.inf if magnitude == np.uint32(0x0F800000) else np.nan)
    return -value if bits < 0 else value


@compiled
def _integers_to_half(value: Element) -> Any:
    """Round a float32 that is not NaN, to nearest, ties to even; infinity where it overflows."""
    bits = np.float32(value).view(np.int32)
    size = bits & np.int32(0x7FFFFFFF)
    normal = ((size + np.int32(0xFFF) + ((size >> 13) & 1)) >> 13) - np.int32(112 << 10)
    # Below the normal range all numbers are multiples of one quantum.
    subnormal = np.int32(np.rint(min(abs(value), np.float32(1.0)) * np.float32(2.0**24)))
    result = np.int32(min(normal if normal >= 1 << 10 else subnormal, np.int32(31 << 10)))
    return np.int16(result - (np.int32(0x8000) if bits < 0 else np.int32(0)))


_NATIVE = _is_native()

half_to_single: Any = _native_to_single if _NATIVE else _integers_to_single
"""Return the float32 of the bits of a float16, exactly."""

single_to_half: Any = _native_to_half if _NATIVE else _integers_to_half
"""Return the bits of a float32 that is not NaN rounded to float16: to nearest, ties to even."""
