"""Bytes of partials: canonical, the same on every machine, and never executed.

A header, the digits of dgamma and of dbeta as int32, place by place, flags for terms that are not
finite, and a checksum. All integers are little-endian. See docs/scale.md.
"""

import math
import struct
import sys
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.lattice.digits import Number
from truenorm.kernels.norm import LAYER_NORM, RMS_NORM
from truenorm.kernels.special import IS_NAN
from truenorm.partials.kind import Kind
from truenorm.partials.places import Places, check_range, count_digits, numbers_of

__all__ = ["REMEDY", "decoded", "encoded"]

MAGIC = b"truenorm partial"
VERSION = 2
HEADER = struct.Struct("<16sH4BdQiIiIB")
CHECKSUM = struct.Struct("<I")
TYPES = ("float16", "bfloat16", "float32")
TYPE_CODES = tuple(range(len(TYPES)))
NO_TYPE = 255
NORMS = (LAYER_NORM, RMS_NORM)
MOST_AXES = 64
"""Of an array of NumPy."""

REMEDY = "pass the bytes that tobytes returned"


def _code(dtype: np.dtype[Any] | None) -> int:
    return NO_TYPE if dtype is None else TYPES.index(dtype.name)


def _dtype(name: str, code: int) -> np.dtype[Any]:
    """Return the type with a code; NumPy knows bfloat16 once its package is imported."""
    if code not in TYPE_CODES:
        raise ValueError(f"type of {name} must be one of {TYPE_CODES}, got {code}: {REMEDY}")
    if TYPES[code] == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401
        except ImportError as missing:
            raise ValueError(
                "bytes of bfloat16 must be read with ml_dtypes, which is not installed: "
                "pip install ml_dtypes"
            ) from missing
    return np.dtype(TYPES[code])


def encoded(
    kind: Kind, rows: int, dgamma: Number, dbeta: Number, special: NDArray[np.uint8]
) -> bytes:
    """Return the bytes of a partial."""
    header = HEADER.pack(
        MAGIC,
        VERSION,
        NORMS.index(kind.norm),
        *map(_code, (kind.x, kind.gamma, kind.beta)),
        kind.eps,
        rows,
        dgamma.first,
        len(dgamma.digits),
        dbeta.first,
        len(dbeta.digits),
        len(kind.lengths),
    )
    lengths = struct.pack(f"<{len(kind.lengths)}Q", *kind.lengths)
    numbers = (number.digits.astype("<i4").tobytes() for number in (dgamma, dbeta))
    body = b"".join((header, lengths, *numbers, special.tobytes()))
    return body + CHECKSUM.pack(zlib.crc32(body))


def _check_least_length(data: bytes, expected: int) -> None:
    if len(data) < expected:
        raise ValueError(f"expected at least {expected} bytes, got {len(data)}: {REMEDY}")


def _kind(norm: int, eps: float, lengths: tuple[int, ...], x: int, *parameters: int) -> Kind:
    """Return the kind that a header describes; raise ValueError if there is none."""
    check_range("norm", norm, 0, len(NORMS) - 1, REMEDY)
    check_range("eps", eps, 0.0, sys.float_info.max, REMEDY)
    for k, length in enumerate(lengths):
        check_range(f"length of axis {k}", length, 1, sys.maxsize, REMEDY)
    gamma, beta = (
        None if code == NO_TYPE else _dtype(name, code)
        for name, code in zip(("gamma", "beta"), parameters, strict=True)
    )
    if NORMS[norm] is RMS_NORM and beta is not None:
        raise ValueError(f"rms_norm has no beta, got one of {beta}: {REMEDY}")
    return Kind(NORMS[norm], abs(eps), lengths, _dtype("x", x), gamma, beta)


def decoded(data: bytes) -> tuple[Kind, int, Number, Number, NDArray[np.uint8]]:
    """Return the fields of a partial; raise ValueError if bytes are damaged.

    The checksum finds every flipped bit. The ranges are checked as well, since other programs can
    write bytes with a valid checksum. Nothing is allocated before the length has been compared.
    """
    if not data.startswith(MAGIC):
        raise ValueError(
            f"expected bytes that begin with {MAGIC!r}, got {data[: len(MAGIC)]!r}: {REMEDY}"
        )
    _check_least_length(data, HEADER.size)
    _, version, norm, x, gamma, beta, eps, rows, *ends, axes = HEADER.unpack_from(data)
    if version != VERSION:
        raise ValueError(
            f"expected version {VERSION} of the format, got version {version}: compute the "
            "partial again, or call tobytes and frombuffer with the same version of truenorm"
        )
    # First: the product of so many lengths could have thousands of digits.
    check_range("number of axes", axes, 1, MOST_AXES, REMEDY)
    position = HEADER.size + 8 * axes
    _check_least_length(data, position)
    lengths = struct.unpack_from(f"<{axes}Q", data, HEADER.size)
    size = math.prod(lengths)
    places = Places(*ends[:2]), Places(*ends[2:])
    digits = count_digits(places, size)
    flags = position + 4 * digits
    end = flags + 2 * size
    if len(data) != end + CHECKSUM.size:
        raise ValueError(f"expected {end + CHECKSUM.size} bytes, got {len(data)}: {REMEDY}")
    (expected,), checksum = CHECKSUM.unpack_from(data, end), zlib.crc32(memoryview(data)[:end])
    if checksum != expected:
        raise ValueError(
            f"expected bytes with checksum {expected:#010x}, got {checksum:#010x}: the bytes are "
            f"damaged, {REMEDY}"
        )
    kind = _kind(norm, eps, lengths, x, gamma, beta)
    for name, each in zip(("dgamma", "dbeta"), places, strict=True):
        each.check(name, REMEDY)
    if kind.beta is None and places[1].length:
        raise ValueError(
            f"dbeta must have no places without beta, got {places[1].length}: {REMEDY}"
        )
    special = np.frombuffer(data, np.uint8, 2 * size, flags).reshape(2, size).copy()
    check_range("flags", int(special.max()), 0, int(IS_NAN), REMEDY)
    values = np.frombuffer(data, "<i4", digits, position).astype(np.int64)
    dgamma, dbeta = numbers_of(values, places, size)
    return kind, rows, dgamma, dbeta, special
