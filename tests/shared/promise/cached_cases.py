"""Hard cases in files: 10,000 hard elements per type and output, with a hash of the answers.

``PYTHONPATH=tests python -m promise.cached_cases`` writes the files, on a machine with a
longdouble of 64 bits; other machines and versions of NumPy read them. Inputs that an output does
not depend on are not stored, and replaced by simple ones. `oracle` computes the answers.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shared.promise.checking import expected_results
from shared.promise.families import DTYPES, Array, Case
from shared.promise.hard_cases import OUTPUTS, hard_cases, hard_elements
from shared.promise.oracle import FORMATS, bits

ELEMENTS = 10_000
DATA = Path(__file__).parent / "data"
INPUTS = {"y": ("x", "gamma", "beta"), "dx": ("x", "gamma", "dy"), "dgamma": ("x", "dy")}
INPUTS["dbeta"] = ("dy",)
TYPES = {dtype.name: dtype for dtype in DTYPES}


class CachedCase(NamedTuple):
    """A case, and the digest of the correct output in its columns."""

    case: Case
    digest: str


def digest(output: Array) -> str:
    """Return a hash of the bits."""
    patterns = bits(output)
    return sha256(patterns.astype(f"<u{patterns.itemsize}").tobytes()).hexdigest()


def expected_digest(case: Case, output: str) -> str:
    """Return the digest of the oracle's answer."""
    answer = expected_results(case, [output])[OUTPUTS.index(output)]
    assert answer is not None
    return digest(answer)


def _file(output: str, dtype: np.dtype[Any]) -> Path:
    return DATA / f"{dtype.name}-{output}.npz"


def write_cases(output: str, dtype: np.dtype[Any]) -> Path:
    """Make the cases of an output and a type, and write their file."""
    about, arrays = [], defaultdict(list)
    for case in hard_cases(output, dtype, ELEMENTS):
        types = {}
        for name in INPUTS[output]:
            array = getattr(case, name)
            types[name] = array.dtype.name
            arrays[types[name]].append(bits(array).ravel())
        rows, size = case.x.shape
        columns = range(size) if case.columns is None else case.columns
        about.append(
            {
                "name": case.name,
                "shape": [rows, size],
                "eps": case.eps.hex(),
                "types": types,
                "everywhere": case.columns is None,
                "not_in": sorted(set(range(size)) - set(columns)),
                "digest": expected_digest(case, output),
            }
        )
    path = _file(output, dtype)
    entries: dict[str, Any] = {
        name: _byte_planes(np.concatenate(parts)) for name, parts in arrays.items()
    }
    entries["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez_compressed(path, **entries)
    return path


def _byte_planes(patterns: Array) -> Array:
    """Return the lowest bytes of all numbers, then the next ones: exponents compress so."""
    little = patterns.astype(f"<u{patterns.itemsize}")
    return np.ascontiguousarray(little.view(np.uint8).reshape(-1, patterns.itemsize).T)


def _from_byte_planes(planes: Array, dtype: np.dtype[Any]) -> Array:
    little = np.ascontiguousarray(planes.T).view(f"<u{dtype.itemsize}").ravel()
    return little.astype(FORMATS[dtype].storage).view(dtype)


def cached_cases(output: str, dtype: np.dtype[Any]) -> Iterator[CachedCase]:
    """Read the cases of an output and a type."""
    with np.load(_file(output, dtype), allow_pickle=False) as file:
        about = json.loads(file["about"].tobytes())
        numbers = {
            name: _from_byte_planes(file[name], TYPES[name])
            for name in file.files
            if name in TYPES
        }
    for each in about:
        rows, size = each["shape"]
        inputs: dict[str, Any] = {
            "x": np.resize(np.arange(5), (rows, size)).astype(dtype),
            "gamma": np.ones(size, dtype) if output == "dgamma" else None,
            "beta": np.ones(size, dtype) if output == "dbeta" else None,
            "dy": np.ones((rows, size), dtype),
        }
        for name, kind in each["types"].items():
            shape = (rows, size) if name in ("x", "dy") else (size,)
            count = int(np.prod(shape))
            inputs[name] = numbers[kind][:count].reshape(shape)
            numbers[kind] = numbers[kind][count:]
        columns = tuple(sorted(set(range(size)) - set(each["not_in"])))
        case = Case(
            each["name"],
            eps=float.fromhex(each["eps"]),
            columns=None if each["everywhere"] else columns,
            **inputs,
        )
        yield CachedCase(case, each["digest"])


def some_cached_cases(output: str, dtype: Any, elements: int) -> Iterator[Case]:
    """Yield the first cases, with at least `elements` hard elements in total."""
    for case, _ in cached_cases(output, np.dtype(dtype)):
        if elements <= 0:
            return
        elements -= hard_elements(case, output)
        yield case
    assert elements <= 0, "not enough cached cases"


def main() -> int:
    """Write all files."""
    DATA.mkdir(exist_ok=True)
    for dtype in DTYPES:
        for output in OUTPUTS:
            path = write_cases(output, dtype)
            print(f"{path.name}: {path.stat().st_size:,} bytes")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
