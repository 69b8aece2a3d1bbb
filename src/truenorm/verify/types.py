"""The floating-point types by name: dtypes, unit roundoff and ulp."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, FloatFormat
from truenorm.tools.arguments import require_choice

Array = NDArray[Any]
Float64s = NDArray[np.float64]
FORMATS: dict[str, FloatFormat] = {
    each.name: each for each in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)
}
CODE_TYPES = (
    *("uint8", "int8", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e8m0fnu"),
    "float4_e2m1fn",
)
"""The types of codes and scales of one byte; float8 and float4 are those of ml_dtypes."""
JUDGED_TYPES = (*FORMATS, *CODE_TYPES)
"""The types of results whose bits are compared."""
NUMERIC_TYPES = (
    *FORMATS,
    *("bool", "complex64", "complex128", np.dtype(np.longdouble).name),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
"""The types of y that are judged, and those that a subject may return by mistake."""


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a type's name.

    Examples
    --------
    >>> dtype_of("float16")
    dtype('float16')
    """
    require_choice("type", name, FORMATS)
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as missing:
        raise ValueError(
            "bfloat16 needs the package ml_dtypes: pip install 'truenorm[verify]'"
        ) from missing
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def is_available(name: str) -> bool:
    """Return True if there can be arrays of a type: bfloat16 needs the package ml_dtypes."""
    try:
        dtype_of(name)
    except ValueError:
        return False
    return True


def numeric_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of one of `NUMERIC_TYPES` or `CODE_TYPES`."""
    if not name.startswith(("bfloat", "float8", "float4")):
        return np.dtype(name)
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def same_bits(one: Array, other: Array) -> bool:
    """Return True if two arrays of one shape and type have the same bits."""
    bits = f"u{one.dtype.itemsize}"
    return np.array_equal(one.view(bits), other.view(bits))


def unit_roundoff(name: str) -> float:
    """Return u, half the distance from 1 to the next larger number."""
    return 2.0 ** -FORMATS[name].precision


def ulps_of(values: Float64s, name: str) -> Float64s:
    """Return the ulp of a type at each finite value."""
    kind = FORMATS[name]
    _, exponents = np.frexp(values)
    ulp_exponents = np.where(values == 0, kind.quantum, exponents - kind.precision)
    return np.ldexp(1.0, np.maximum(ulp_exponents, kind.quantum))
