"""Partials as bytes: one form for each value, the same on every machine, nothing executed.

A header, then the digits of dgamma and of dbeta as int32, place by place, then bits of what is not
finite, if there is any. All integers are little-endian.
"""

import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.lattice.digits import Number
from truenorm.kernels.norm import LAYER_NORM, RMS_NORM
from truenorm.partials.kind import Kind

__all__ = ["decoded", "encoded"]

MAGIC = b"truenorm partial"
VERSION = 1
HEADER = struct.Struct("<16sH4BdQiIiIBB")
TYPES = ("float16", "bfloat16", "float32")
NO_TYPE = 255
NORMS = (LAYER_NORM, RMS_NORM)


def _code(dtype: np.dtype[Any] | None) -> int:
    return NO_TYPE if dtype is None else TYPES.index(dtype.name)


def _dtype(code: int) -> np.dtype[Any] | None:
    """Return a type; that of bfloat16 is known to NumPy once its package is imported."""
    if code == NO_TYPE:
        return None
    if TYPES[code] == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401
        except ImportError as missing:
            raise ValueError(
                "these bytes are of bfloat16, which NumPy knows once its package is installed: "
                "pip install ml_dtypes"
            ) from missing
    return np.dtype(TYPES[code])


def encoded(
    kind: Kind, rows: int, dgamma: Number, dbeta: Number, special: NDArray[np.uint8]
) -> bytes:
    """Return the bytes of a partial."""
    has_special = bool(special.any())
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
        has_special,
        len(kind.lengths),
    )
    lengths = struct.pack(f"<{len(kind.lengths)}Q", *kind.lengths)
    numbers = (number.digits.astype("<i4").tobytes() for number in (dgamma, dbeta))
    return b"".join((header, lengths, *numbers, special.tobytes() if has_special else b""))


def _check_length(data: bytes, expected: int, *, all_of_it: bool = False) -> None:
    if len(data) < expected or (all_of_it and len(data) > expected):
        raise ValueError(f"the bytes of this partial are {expected}, and {len(data)} were passed")


def _kind(norm: int, eps: float, lengths: tuple[int, ...], x: int, *parameters: int) -> Kind:
    known = {*range(len(TYPES)), NO_TYPE}
    if norm >= len(NORMS) or x == NO_TYPE or not {x, *parameters} <= known:
        raise ValueError("the bytes of this partial are damaged: it has no known norm or type")
    of_x = _dtype(x)
    assert of_x is not None
    return Kind(NORMS[norm], eps, lengths, of_x, *map(_dtype, parameters))


def decoded(data: bytes) -> tuple[Kind, int, Number, Number, NDArray[np.uint8]]:
    """Return what bytes are of."""
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        raise ValueError("these are not the bytes of a partial: pass what tobytes returned")
    (_, version, norm, x, gamma, beta, eps, rows, *places, has_special, axes) = HEADER.unpack_from(
        data
    )
    if version != VERSION:
        raise ValueError(
            f"the bytes are of version {version}, and this truenorm reads version {VERSION}: "
            "install the one that wrote them"
        )
    position = HEADER.size + 8 * axes
    _check_length(data, position)
    lengths = struct.unpack_from(f"<{axes}Q", data, HEADER.size)
    size = math.prod(lengths)
    held = places[1] * (size + 1) + places[3] * size
    _check_length(data, position + 4 * held + 2 * size * has_special, all_of_it=True)
    kind = _kind(norm, eps, lengths, x, gamma, beta)
    numbers = []
    for first, count, columns in (
        (places[0], places[1], kind.size + 1),
        (places[2], places[3], kind.size),
    ):
        digits = np.frombuffer(data, "<i4", count * columns, position).astype(np.int64)
        numbers.append(Number(first, digits.reshape(count, columns)))
        position += 4 * count * columns
    special = np.zeros((2, kind.size), np.uint8)
    if has_special:
        special = np.frombuffer(data, np.uint8, 2 * kind.size, position).reshape(2, -1).copy()
    return kind, rows, numbers[0], numbers[1], special
