"""Bytes of partials put together field by field, after the format of docs/scale.md.

And a check that a call refuses them as it should.
"""

import math
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

__all__ = ["HEADER", "SECONDS", "Header", "error_of", "forged", "sealed"]

HEADER = struct.Struct("<16sH4BdQiIiIB")
SECONDS = 0.1
TRIES = 3
"""Processor time of a call, since other processes may share the machine."""


class Header(NamedTuple):
    """The fields of a header, by default those of a partial that is accepted."""

    magic: bytes = b"truenorm partial"
    version: int = 2
    norm: int = 0
    x: int = 2
    gamma: int = 2
    beta: int = 2
    eps: float = 1e-5
    rows: int = 2
    first_of_dgamma: int = -2
    places_of_dgamma: int = 3
    first_of_dbeta: int = -1
    places_of_dbeta: int = 2
    axes: int = 1


def sealed(body: bytes) -> bytes:
    """Return bytes with a valid checksum at their end."""
    return body + struct.pack("<I", zlib.crc32(body))


def forged(lengths: tuple[int, ...] = (3,), digit: int = 1, flag: int = 0, **fields: Any) -> bytes:
    """Return bytes of the right length and checksum: only ranges can refuse them."""
    header = Header(axes=len(lengths))._replace(**fields)
    size = math.prod(lengths)
    digits = header.places_of_dgamma * (size + 1) + header.places_of_dbeta * size
    return sealed(
        b"".join(
            (
                HEADER.pack(*header),
                struct.pack(f"<{len(lengths)}Q", *lengths),
                np.full(digits, digit, "<i4").tobytes(),
                np.full(2 * size, flag, np.uint8).tobytes(),
            )
        )
    )


def error_of(call: Callable[[], Any], nbytes: int = 0, kind: type[Exception] = ValueError) -> str:
    """Return the message of a call that must fail, at once and in little memory.

    The best of some tries counts: a first one may import something, or meet the garbage collector.
    """
    most = 2**18 + 8 * nbytes
    seconds, peak, message = math.inf, most, ""
    for _ in range(TRIES):
        tracemalloc.start()
        try:
            start = time.process_time()
            with pytest.raises(kind) as caught:
                call()
            seconds = time.process_time() - start
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        message = str(caught.value)
        if seconds < SECONDS and peak < most:
            break
    assert seconds < SECONDS
    assert peak < most
    return message
