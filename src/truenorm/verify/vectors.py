"""Cases as files that any language reads: raw little-endian arrays and a manifest in plain text.

The same files serve two uses. `write_vectors` writes inputs, correctly rounded results and
bounds, for a test that lives with the kernel. `truenorm.verify.command` writes the inputs of one
case for a program, and reads what it answers.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from truenorm.verify import oracle
from truenorm.verify.inputs import Case
from truenorm.verify.progress import Progress
from truenorm.verify.record import OUTPUTS
from truenorm.verify.types import Array, dtype_of

__all__ = [
    "INPUTS",
    "MANIFEST",
    "fits",
    "from_little_endian",
    "little_endian",
    "manifest",
    "write_input",
    "write_vectors",
]

MANIFEST = "manifest.txt"
HEADER = "truenorm-vectors 1"
INPUTS = ("x", "gamma", "beta", "dy")
_NAME = re.compile(r"[A-Za-z0-9.+-]{1,100}")  # scanf("%100s") reads it, and it is no path

README = """\
Inputs of layer normalization, correctly rounded results, and the error that is allowed.

manifest.txt begins with the line "truenorm-vectors 1". Each further line is a case:

    name dtype rows D eps

with single spaces between them. A name has at most 100 of the characters A-Z a-z 0-9 . + -
and no two names are the same but for capitals. dtype is float16, bfloat16, float32 or float64;
eps is a hexadecimal floating-point number, which strtod and scanf("%la") read exactly.

For each case there are four files. The first three are raw little-endian numbers, nothing
before, between or after them; arrays stand one after the other, and rows of D elements too.

    <name>.in        x (rows*D), gamma (D), beta (D), dy (rows*D), in the dtype
    <name>.expected  y (rows*D), dx (rows*D), dgamma (D), dbeta (D), in the dtype
    <name>.bound     for each number of <name>.expected the absolute error allowed, in float64
    <name>.npz       the same for Python: numpy.load(file, allow_pickle=False) has x, gamma,
                     beta, dy, eps, y, dx, dgamma, dbeta, bound_y, bound_dx, bound_dgamma,
                     bound_dbeta and dtype; bfloat16 is stored as its bits, in uint16

A result is right if |result - expected| <= bound, computed in float64. Write it like this, so
that NaN fails. Where the expected number is infinite, only the same infinity is right; where it
is NaN, anything that is not finite is.
"""


def fits(case: Case) -> bool:
    """Tell whether the files can hold a case: rows, gamma and beta, all of one type."""
    arrays = (case.x, case.gamma, case.beta, case.dy)
    return case.layout == "rows" and all(
        array is not None and array.dtype == dtype_of(case.dtype) for array in arrays
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
        rows, d = case.x.shape
        lines.append(f"{case.name} {case.dtype} {rows} {d} {float(case.eps).hex()}")
    return "\n".join(lines) + "\n"


def little_endian(array: Array) -> bytes:
    """Return the bytes of an array in C order, the lowest byte of each number first.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm.verify.vectors import little_endian
    >>> little_endian(np.array([1.0, -2.0], np.float16)).hex(" ")
    '00 3c 00 c0'
    """
    size = array.dtype.itemsize
    return np.ascontiguousarray(array).view(f"u{size}").astype(f"<u{size}", copy=False).tobytes()


def from_little_endian(data: bytes, dtype: str) -> Array:
    """Return the numbers whose bytes `little_endian` would return."""
    kind = dtype_of(dtype)
    bits = np.frombuffer(data, f"<u{kind.itemsize}")
    return bits.astype(f"u{kind.itemsize}").view(kind)


def write_input(folder: Path, case: Case) -> int:
    """Write the arguments of a case to ``<name>.in``, and return the number of bytes."""
    arrays = (getattr(case, name) for name in INPUTS)
    return _write(folder / f"{case.name}.in", b"".join(map(little_endian, arrays)))


def write_vectors(
    folder: Path, cases: Sequence[Case], progress: Progress | None = None
) -> dict[str, Any]:
    """Write cases, correctly rounded results and bounds to a folder.

    Parameters
    ----------
    folder : Path
        A new folder, or an empty one.
    cases : sequence of Case
        Those which the files cannot hold (`fits`) are left out.
    progress : callable, optional
        Called as ``progress(done, total, name)`` before each case.

    Returns
    -------
    dict
        ``cases`` and ``skipped``, how many there are of them; ``bytes``, the size of all files;
        ``folder``.

    Raises
    ------
    FileExistsError
        If the folder is not empty: nothing is ever overwritten.
    """
    _require_empty(folder)
    chosen = [case for case in cases if fits(case)]
    listing = manifest(chosen)  # before anything is written: it refuses bad names
    folder.mkdir(parents=True, exist_ok=True)
    size = 0
    for done, case in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen), case.name)
        size += _write_case(folder, case)
    size += _write(folder / "README.txt", README.encode())
    # Last, so that a folder with a manifest is complete.
    size += _write(folder / MANIFEST, listing.encode())
    skipped = len(cases) - len(chosen)
    return {"cases": len(chosen), "skipped": skipped, "bytes": size, "folder": str(folder)}


def _require_empty(folder: Path) -> None:
    if folder.is_dir():
        if any(folder.iterdir()):
            raise FileExistsError(
                f"{folder} is not empty: name a new folder, or empty this one first"
            )
    elif folder.exists():
        raise FileExistsError(f"{folder} is a file: name a new folder")


def _write_case(folder: Path, case: Case) -> int:
    """Write the four files of a case, and return the number of bytes."""
    answer = oracle.expected(case)
    results: dict[str, Array] = {}
    for output in OUTPUTS:
        value = answer.values[output]
        assert value is not None, "gamma and beta are given"
        results[output] = value
    bounds = {output: np.asarray(answer.allowed(output), np.float64) for output in OUTPUTS}
    size = write_input(folder, case)
    for suffix, arrays in (("expected", results), ("bound", bounds)):
        data = b"".join(little_endian(array) for array in arrays.values())
        size += _write(folder / f"{case.name}.{suffix}", data)
    archive = folder / f"{case.name}.npz"
    np.savez_compressed(archive, **_archive_of(case, results, bounds))
    return size + archive.stat().st_size


def _archive_of(case: Case, results: dict[str, Array], bounds: dict[str, Array]) -> dict[str, Any]:
    """Return the contents of the .npz file, none of which needs pickle."""
    arrays = {name: getattr(case, name) for name in INPUTS} | results
    if case.dtype == "bfloat16":  # a type that NumPy alone does not have
        arrays = {name: array.view(np.uint16) for name, array in arrays.items()}
    limits = {f"bound_{output}": bound for output, bound in bounds.items()}
    return arrays | limits | {"eps": np.float64(case.eps), "dtype": np.array(case.dtype)}


def _write(path: Path, data: bytes) -> int:
    # Exclusive: if something has appeared there since the folder was looked at, it stays.
    with path.open("xb") as file:
        return file.write(data)
