"""Read tensors from a file in the format of safetensors, of which nothing is taken on trust.

Eight bytes say how long the header is. It is JSON, with the type, the shape and the place of each
tensor; raw numbers follow, the lowest byte first. That is too little to depend on a package for.
"""

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from truenorm.verify.types import Array, dtype_of

__all__ = ["read_safetensors"]

TYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
LONGEST_HEADER = 100_000_000  # as others have it: real headers are far shorter


def read_safetensors(
    path: Path, wanted: frozenset[str]
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the tensors that are wanted, an empty array for each other, and the metadata."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LONGEST_HEADER, size - 8):
            raise ValueError(f"{path} is no safetensors file: its header would be {length} bytes")
        try:
            header = json.loads(file.read(length))
            metadata = dict(header.pop("__metadata__", {}))
        except (ValueError, AttributeError, TypeError) as unreadable:
            raise ValueError(
                f"{path} is no safetensors file: its header is no JSON"
            ) from unreadable
        found = {}
        for name, described in header.items():
            found[name] = np.empty(0)
            if name in wanted:
                kind, shape, start, stop = _described(path, name, described, size - 8 - length)
                file.seek(8 + length + start)
                data = np.fromfile(file, np.uint8, stop - start)
                if len(data) < stop - start:
                    raise ValueError(f"{path}: {name} ends too early")
                found[name] = _numbers(data, kind).reshape(shape)
    return found, metadata


def _described(path: Path, name: str, said: Any, room: int) -> tuple[str, list[int], int, int]:
    """Return type, shape and place of a tensor, all of which fit together."""
    try:
        code, shape, (start, stop) = said["dtype"], said["shape"], said["data_offsets"]
        numbers = [*shape, start, stop]
    except (KeyError, TypeError, ValueError) as unreadable:
        raise ValueError(f"{path}: {name} is not described as a tensor is") from unreadable
    if code not in TYPES:
        raise ValueError(f"{path}: {name} is {code}; known are {', '.join(TYPES)}")
    if not all(type(each) is int and each >= 0 for each in numbers) or not start <= stop <= room:
        raise ValueError(f"{path}: {name} is not where its header says")
    if prod(shape) * dtype_of(TYPES[code]).itemsize != stop - start:
        raise ValueError(f"{path}: {name} of shape {shape} in {code} has {stop - start} bytes")
    return TYPES[code], shape, start, stop


def _numbers(data: Array, kind: str) -> Array:
    """Return bytes, the lowest of each number first, as numbers of a type."""
    dtype = dtype_of(kind)
    return data.view(f"<u{dtype.itemsize}").astype(f"u{dtype.itemsize}", copy=False).view(dtype)
