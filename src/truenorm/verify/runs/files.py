"""Cases as files that any language reads: raw little-endian arrays and a manifest in plain text.

`truenorm.verify.pages.vectors` writes them for the tests of a kernel, with exact answers;
`truenorm.verify.runs.command` writes one case for a program, and reads what it answers.
"""

import re
import stat
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.types import Array, dtype_of

__all__ = [
    *("MANIFEST", "fits", "input_damage", "little_endian", "manifest", "read_results"),
    *("write_input", "written"),
]

MANIFEST = "manifest.txt"
HEADER = "truenorm-vectors 1"
_NAME = re.compile(r"[A-Za-z0-9.+-]{1,100}")  # scanf("%100s") reads it, and it is no path


def fits(case: Case) -> bool:
    """Tell whether the files can hold a case: rows and parameters, all of one type."""
    return (case.layout, case.gradients) == ("rows", "") and all(
        array is not None and array.dtype == dtype_of(case.dtype) for array in case.inputs.values()
    )


def manifest(cases: Iterable[Case]) -> str:
    """Return the text of a manifest.

    Raises
    ------
    ValueError
        If a name cannot be a field of the manifest and the name of a file.
    """
    lines, seen = [HEADER], set()
    for case in cases:
        if not _NAME.fullmatch(case.name):
            raise ValueError(
                f"case name {case.name!r} cannot be written to a manifest: "
                "it needs 1 to 100 of the characters A-Z a-z 0-9 . + -"
            )
        # Some file systems do not tell capitals apart.
        if case.name.casefold() in seen:
            raise ValueError(f"two cases are named {case.name!r}: their files would be the same")
        seen.add(case.name.casefold())
        rows, d = case.shape
        lines.append(f"{case.name} {case.dtype} {rows} {d} {float(case.eps).hex()}")
    return "\n".join(lines) + "\n"


def little_endian(array: Array) -> bytes:
    """Return the bytes of an array in C order, the lowest byte of each number first.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm.verify.runs.files import little_endian
    >>> little_endian(np.array([1.0, -2.0], np.float16)).hex(" ")
    '00 3c 00 c0'
    """
    size = array.dtype.itemsize
    return np.ascontiguousarray(array).view(f"u{size}").astype(f"<u{size}", copy=False).tobytes()


def _from_little_endian(data: bytes, dtype: str) -> Array:
    """Return the numbers whose bytes `little_endian` would return."""
    kind = dtype_of(dtype)
    bits = np.frombuffer(data, f"<u{kind.itemsize}")
    return bits.astype(f"u{kind.itemsize}").view(kind)


def _bytes_of_inputs(case: Case) -> dict[str, bytes]:
    return {name: little_endian(array) for name, array in case.inputs.items() if array is not None}


def write_input(folder: Path, case: Case) -> int:
    """Write the arguments of a case to ``<name>.in``, and return the number of bytes."""
    return written(folder / f"{case.name}.in", b"".join(_bytes_of_inputs(case).values()))


def written(path: Path, data: bytes) -> int:
    """Write a new file, and return its size; what has appeared there meanwhile stays."""
    with path.open("xb") as file:
        return file.write(data)


def _size_of(path: Path) -> int | None:
    """Return the size of a regular file; None for anything else, which could block or lie."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def read_results(path: Path, case: Case, results: dict[str, Array | None]) -> str:
    """Fill in the results from a file of the right size; return what was wrong, or nothing."""
    operation, (rows, d) = case.operation, case.shape
    item = dtype_of(case.dtype).itemsize
    shapes = {
        each.name: (rows, d) if operation.is_rows(each.name) else (d,)
        for each in operation.outputs
    }
    counts = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    of_forward = operation.outputs_of(backward=False)
    whole, forward = (item * sum(counts[name] for name in names) for names in (counts, of_forward))
    size = _size_of(path)
    if size is None:
        return f"wrote no file {path.name}"
    if size not in (whole, forward):
        return f"wrote {size} bytes to {path.name}, expected {whole}"
    numbers = _from_little_endian(path.read_bytes(), case.dtype)
    for name in counts if size == whole else of_forward:
        results[name] = numbers[: counts[name]].reshape(shapes[name])
        numbers = numbers[counts[name] :]
    return ""


def input_damage(path: Path, case: Case) -> tuple[str, ...]:
    """Return which inputs are no longer in their file as they were."""
    given = _bytes_of_inputs(case)
    if _size_of(path) != sum(map(len, given.values())):
        return tuple(given)
    data = memoryview(path.read_bytes())
    damaged = []
    for name, before in given.items():
        if data[: len(before)] != before:
            damaged.append(name)
        data = data[len(before) :]
    return tuple(damaged)
