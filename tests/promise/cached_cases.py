"""Hard cases as data: 10,000 hard elements per type and output, with a hash of the right bits.

``PYTHONPATH=tests python -m promise.cached_cases`` makes them, on a machine whose longdouble
has 64 bits; every other machine, and every NumPy, replays them. Inputs that an output does not
depend on are not kept: others stand for them. What is right is said by the judge of `oracle`.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from promise.checking import expected_results
from promise.families import DTYPES, Array, Case
from promise.hard_cases import OUTPUTS, hard_cases, hard_elements
from promise.oracle import FORMATS, bits

# ruff: noqa: T201
# A command prints its result.


ELEMENTS = 10_000
DATA = Path(__file__).parent / "data"
INPUTS = {"y": ("x", "gamma", "beta"), "dx": ("x", "gamma", "dy"), "dgamma": ("x", "dy")}
INPUTS["dbeta"] = ("dy",)
TYPES = {dtype.name: dtype for dtype in DTYPES}


class CachedCase(NamedTuple):
    """A case, and what `digest` says of the right bits in the columns to look at."""

    case: Case
    digest: str


def digest(output: Array) -> str:
    """Return a hash of the bits."""
    patterns = bits(output)
    return sha256(patterns.astype(f"<u{patterns.itemsize}").tobytes()).hexdigest()


def expected_digest(case: Case, output: str) -> str:
    """Ask the judge."""
    right = expected_results(case, [output])[OUTPUTS.index(output)]
    assert right is not None
    return digest(right)


def _file(output: str, dtype: np.dtype[Any]) -> Path:
    return DATA / f"{dtype.name}-{output}.npz"


def keep(output: str, dtype: np.dtype[Any]) -> Path:
    """Make the cases of an output and a type, and write their file."""
    about, arrays = [], defaultdict(list)
    for case in hard_cases(output, dtype, ELEMENTS):
        types = {}
        for name in INPUTS[output]:
            array = getattr(case, name)
            types[name] = array.dtype.name
            # The bytes of each significance together: those of exponents compress.
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
        name: _planes(np.concatenate(some)) for name, some in arrays.items()
    }
    entries["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez_compressed(path, **entries)
    return path


def _planes(patterns: Array) -> Array:
    """Return the lowest byte of every number, then the next ones."""
    little = patterns.astype(f"<u{patterns.itemsize}")
    return np.ascontiguousarray(little.view(np.uint8).reshape(-1, patterns.itemsize).T)


def _numbers(planes: Array, dtype: np.dtype[Any]) -> Array:
    little = np.ascontiguousarray(planes.T).view(f"<u{dtype.itemsize}").ravel()
    return little.astype(FORMATS[dtype].storage).view(dtype)


def cached_cases(output: str, dtype: np.dtype[Any]) -> Iterator[CachedCase]:
    """Yield the cases of an output and a type as they are kept."""
    with np.load(_file(output, dtype), allow_pickle=False) as file:
        about = json.loads(file["about"].tobytes())
        left = {name: _numbers(file[name], TYPES[name]) for name in file.files if name in TYPES}
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
            inputs[name], left[kind] = left[kind][:count].reshape(shape), left[kind][count:]
        columns = tuple(sorted(set(range(size)) - set(each["not_in"])))
        case = Case(
            each["name"],
            eps=float.fromhex(each["eps"]),
            columns=None if each["everywhere"] else columns,
            **inputs,
        )
        yield CachedCase(case, each["digest"])


def some_cached_cases(output: str, dtype: Any, elements: int) -> Iterator[Case]:
    """Yield the first of them, with at least so many hard elements in all."""
    for case, _ in cached_cases(output, np.dtype(dtype)):
        if elements <= 0:
            return
        elements -= hard_elements(case, output)
        yield case
    assert elements <= 0, "so many are not kept"


def main() -> int:
    """Write all files."""
    DATA.mkdir(exist_ok=True)
    for dtype in DTYPES:
        for output in OUTPUTS:
            path = keep(output, dtype)
            print(f"{path.name}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
