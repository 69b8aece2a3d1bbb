"""Write cases, correctly rounded results and bounds to files, for tests in any language."""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from truenorm.tools.progress import Progress, with_callback
from truenorm.verify.operation import Case, Operation
from truenorm.verify.oracle import expected
from truenorm.verify.running.command import (
    MANIFEST,
    fits,
    little_endian,
    manifest,
    write_input,
    write_new,
)
from truenorm.verify.types import Array

README = """\
Inputs of {title}, correctly rounded results, and the error that is allowed.

manifest.txt begins with the line "truenorm-vectors 1". Each further line is a case:

    name dtype rows D eps

with single spaces between them. A name has at most 100 of the characters A-Z a-z 0-9 . + -
and no two names differ only in case. dtype is float16, bfloat16, float32 or float64;
eps is a hexadecimal floating-point number, which strtod and scanf("%la") read exactly.

For each case there are four files. The first three are raw little-endian numbers without
header, padding or separators: one array after the other, row by row.

    <name>.in        {inputs}, in the dtype
    <name>.expected  {outputs}, in the dtype
    <name>.bound     for each number of <name>.expected the absolute error allowed, in float64
{archive}

A result is right if |result - expected| <= bound, computed in float64. Written like this, NaN
fails. Where the expected number is infinite, only the same infinity is right; where it is NaN,
any non-finite result is.
"""


def _readme(operation: Operation) -> str:

    def sized(names: Iterable[str]) -> str:
        return ", ".join(
            f"{name} ({'rows*D' if operation.is_rows(name) else 'D'})" for name in names
        )

    inputs, outputs = (
        [each.name for each in some] for some in (operation.inputs, operation.outputs)
    )
    stored = ", ".join([*inputs, "eps", *outputs, *(f"bound_{name}" for name in outputs)])
    archive = textwrap.fill(
        f"the same for Python: numpy.load(file, allow_pickle=False) has {stored} and dtype; "
        "bfloat16 is stored as its bits, in uint16",
        width=91,
        initial_indent="    <name>.npz       ",
        subsequent_indent=" " * 21,
    )
    return README.format(
        title=operation.title, inputs=sized(inputs), outputs=sized(outputs), archive=archive
    )


def write_vectors(
    folder: Path, cases: Sequence[Case], progress: Progress | None = None
) -> dict[str, Any]:
    """Write cases, correctly rounded results and bounds to a new or empty folder.

    Cases that the files cannot hold (`fits`) are skipped. Return the numbers of ``cases`` and of
    ``skipped`` ones, the size of all files in ``bytes``, and ``folder``. Raise FileExistsError if
    the folder is not empty.
    """
    _require_empty(folder)
    chosen = [case for case in cases if fits(case)]
    listing = manifest(chosen)  # before anything is written: it refuses bad names
    folder.mkdir(parents=True, exist_ok=True)
    size = 0
    for case in with_callback(chosen, progress, str):
        size += _write_case(folder, case)
    if chosen:
        size += write_new(folder / "README.txt", _readme(chosen[0].operation).encode())
    # Written last: a folder with a manifest is complete.
    size += write_new(folder / MANIFEST, listing.encode())
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
    answer = expected(case)
    results = {name: value for name, value in answer.values.items() if value is not None}
    bounds = {output: answer.allowed(output) for output in results}
    size = write_input(folder, case)
    for suffix, arrays in (("expected", results), ("bound", bounds)):
        data = b"".join(little_endian(array) for array in arrays.values())
        size += write_new(folder / f"{case.name}.{suffix}", data)
    archive = folder / f"{case.name}.npz"
    np.savez_compressed(archive, **_archive_of(case, results, bounds))
    return size + archive.stat().st_size


def _archive_of(case: Case, results: dict[str, Array], bounds: dict[str, Array]) -> dict[str, Any]:
    """Return the contents of the .npz file, which needs no pickle."""
    arrays = {name: array for name, array in case.inputs.items() if array is not None} | results
    if case.dtype == "bfloat16":  # a type that NumPy alone does not have
        arrays = {name: array.view(np.uint16) for name, array in arrays.items()}
    limits = {f"bound_{output}": bound for output, bound in bounds.items()}
    return arrays | limits | {"eps": np.float64(case.eps), "dtype": np.array(case.dtype)}
