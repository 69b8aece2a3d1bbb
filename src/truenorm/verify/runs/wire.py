"""How the judge and the process of a subject talk: a line of JSON, then raw arrays. No pickle."""

import json
from collections.abc import Callable, Mapping
from math import prod
from typing import IO, Any

import numpy as np

from truenorm.verify.types import FORMATS, NUMBERS, Array, dtype_of

__all__ = ["BrokenMessageError", "receive", "send"]

LONGEST_LINE = 2**20


class BrokenMessageError(Exception):
    """What arrived is not a message."""


def send(pipe: IO[bytes], message: Mapping[str, Any], arrays: Mapping[str, Array | None]) -> None:
    """Write a message; its arrays follow as they lie in memory."""
    described = {
        name: None if array is None else [array.dtype.name, list(array.shape)]
        for name, array in arrays.items()
    }
    line = json.dumps({**message, "arrays": described}, allow_nan=False)
    pipe.write(line.encode() + b"\n")
    for array in arrays.values():
        if array is not None:
            # As bytes where they are: of a large array one copy more is felt.
            pipe.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    pipe.flush()


def receive(
    pipe: IO[bytes], limit: Callable[[], int]
) -> tuple[dict[str, Any], dict[str, Array | None]] | None:
    """Read a message, or None at the end; an array of more than `limit` bytes is refused.

    The limit is asked for when the message has come: it may depend on what was asked.
    """
    line = pipe.readline(LONGEST_LINE)
    if not line:
        return None
    try:
        message = json.loads(line)
        described = message.pop("arrays")
    except (ValueError, KeyError, AttributeError, TypeError) as unreadable:
        raise BrokenMessageError("a line that is no message") from unreadable
    arrays: dict[str, Array | None] = {}
    for name, description in described.items():
        if description is not None:
            kind, shape = description
            arrays[name] = _array(pipe, kind, shape, limit())
        else:
            arrays[name] = None
    return message, arrays


def _array(pipe: IO[bytes], kind: str, shape: list[int], limit: int) -> Array:
    if kind not in NUMBERS:
        raise BrokenMessageError(f"an array of the unknown type {kind!r}")
    dtype = dtype_of(kind) if kind in FORMATS else np.dtype(kind)
    size = prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size > limit:
        raise BrokenMessageError(f"an array of shape {shape}, above {limit} bytes")
    # Read to where it stays: of a large array one copy more is felt.
    content = np.empty(size, np.uint8)
    read = 0
    while read < size and (more := pipe.readinto(content[read:].data)):  # type: ignore[attr-defined]
        read += more
    if read < size:
        raise BrokenMessageError("an array that ends too early")
    return content.view(dtype).reshape(shape)
