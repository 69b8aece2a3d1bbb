"""User cases: cases of a shape, of arrays or of saved tensors; missing inputs are filled in."""

import json
import os
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from truenorm.tools.arguments import require_choice, require_shape
from truenorm.tools.text import parse_shape
from truenorm.tools.user_files import open_regular
from truenorm.verify.inputs.families import EPS, PLAIN, PLAIN_X
from truenorm.verify.inputs.patterns import Pattern, filled
from truenorm.verify.norms.enclosures import unsupported_reason
from truenorm.verify.norms.norm import Norm, require_norm
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations import LAYER_NORM, as_operation
from truenorm.verify.types import FORMATS, Array, dtype_of

YOUR_DATA = "your data, "
"""The description of a case of a file starts with it."""
MOST_ELEMENTS = sys.maxsize // 8
"""An array of float64 can have no more."""
USER_FAMILY = "own"
"""The family of user cases: they have proven bounds, and exact answers for some rows only."""
NAMES = {
    "x": ("x", "input", "hidden_states"),
    "residual": ("residual",),
    "gamma": ("gamma", "weight"),
    "beta": ("beta", "bias"),
    "dy": ("dy", "grad", "grad_output"),
    "dsum": ("dsum",),
}
"""By input: the names that are accepted for it."""
DEFAULTS: Mapping[str, Pattern] = {
    **PLAIN,
    "x": PLAIN_X[1],
    "residual": "normal",
    "dsum": "normal",
}


def is_user_case(case: Case) -> bool:
    """Return True if a case is a user case."""
    return case.family == USER_FAMILY


def case_of_shape(
    shape: Sequence[int], dtype: str = "float32", *, operation: Operation | str = LAYER_NORM
) -> Case:
    """Return a case of ordinary rows of a shape, always the same.

    Parameters
    ----------
    shape : sequence of int
        The last one is D; the product of the others is the number of rows.
    dtype : str
        float16, bfloat16, float32 or float64.
    operation : Operation or str
        Layer normalization, unless another is given.

    Returns
    -------
    Case
        For `check`, or as one of `own` for `verify`.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> case = tv.case_of_shape((4, 16, 64), "float16")
    >>> case.name, case.shape
    ('float16-own-4x16x64', (64, 64))
    """
    require_choice("dtype", dtype, FORMATS)
    require_shape(shape)
    if not shape or min(shape) < 1:
        raise ValueError(f"shape must have numbers above zero; got {tuple(shape)}")
    if prod(shape) > MOST_ELEMENTS:
        raise ValueError(f"shape must have at most {MOST_ELEMENTS} elements; got {tuple(shape)}")
    *rows, size = shape
    text = "x".join(map(str, shape))
    name = f"{dtype}-{USER_FAMILY}-{text}"
    made = f"tv.case_of_shape({tuple(shape)}, {dtype!r}{{operation}})"
    x = filled(DEFAULTS["x"], dtype, (prod(rows), size), f"{name} x")
    return case_from(
        {"x": x}, name=name, why=f"your shape, {text}", made=made, operation=operation
    )


def case_from(
    arrays: Mapping[str, Array],
    *,
    eps: float = EPS,
    operation: Operation | str = LAYER_NORM,
    name: str = "",
    why: str = "your data",
    made: str = "",
) -> Case:
    """Return a case of arrays; missing inputs are filled in, always with the same numbers.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        x, and any of gamma, beta, dy, residual and dsum; or by the names of PyTorch, such as
        ``hidden_states``, ``weight``, ``bias`` and ``grad``. Other names are ignored.
    eps : float
    operation : Operation or str
        Layer normalization, unless another is given.
    name, why : str
        Its name in reports, and what it is.
    made : str
        The Python expression that makes it, for reproducers.

    Returns
    -------
    Case
        For `truenorm.verify.check`, or for ``own`` of `truenorm.verify.verify`.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm.verify as tv
    >>> rows = np.random.default_rng(0).normal(size=(2, 3, 64)).astype(np.float32)
    >>> tv.case_from({"hidden_states": rows}).shape
    (6, 64)
    """
    what = "a case of your own shape or data"
    norm = require_norm(as_operation(operation), what, "enclosures")
    if not 0 <= eps < np.inf:
        raise ValueError(f"eps must be finite and at least 0; got {eps!r}")
    by_input = _by_input(arrays, norm)
    x = by_input["x"]
    dtype = x.dtype.name
    if dtype not in FORMATS:
        raise ValueError(f"x must be one of {', '.join(FORMATS)}; got {dtype}")
    if x.ndim == 0 or x.size == 0:
        raise ValueError(f"x must have rows of at least one element; got shape {x.shape}")
    name = name or f"{dtype}-{USER_FAMILY}-data-{'x'.join(map(str, x.shape))}"
    inputs: dict[str, Array | None] = {}
    for each in norm.inputs:
        kind, shape = dtype, x.shape
        if each.role == "parameter":
            kind, shape = norm.parameter_type or dtype, x.shape[-1:]
        if each.name in by_input:
            array = _checked(each.name, by_input[each.name], kind, shape)
        else:
            array = _filled(each.name, kind, shape, f"{name} {each.name}", norm)
        inputs[each.name] = array if each.role == "parameter" else array.reshape(-1, shape[-1])
    case = Case(norm, name, dtype, inputs, eps, family=USER_FAMILY, why=why, made=made)
    if reason := unsupported_reason(case):
        raise ValueError(reason)
    return case


def _by_input(arrays: Mapping[str, Array], operation: Operation) -> dict[str, Array]:
    """Return the arrays by the names of the inputs."""
    by_input = {}
    for each in operation.inputs:
        names = [name for name in NAMES.get(each.name, (each.name,)) if name in arrays]
        if len(names) > 1:
            raise ValueError(f"expected one array for {each.name}; got {' and '.join(names)}")
        if names:
            by_input[each.name] = np.asarray(arrays[names[0]])
    if "x" not in by_input:
        accepted, available = " or ".join(NAMES["x"]), ", ".join(arrays) or "nothing"
        raise ValueError(f"expected an array {accepted}; got {available}")
    return by_input


def _checked(name: str, array: Array, kind: str, shape: tuple[int, ...]) -> Array:
    """Return a contiguous array; raise ValueError for another type or shape."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, like x; got {array.shape}")
    if (actual := array.dtype.name) != kind:
        hint = f": use an operation with parameters={actual}" if name in ("gamma", "beta") else ""
        raise ValueError(f"{name} must be {kind}; got {actual}{hint}")
    return np.ascontiguousarray(array)


def _filled(name: str, kind: str, shape: tuple[int, ...], seed: str, norm: Norm) -> Array:
    """Return an input as the families of cases have it."""
    values = filled(DEFAULTS[name], kind, shape, seed)
    if name == "gamma" and norm.gain == "zero-centred":
        return (values.astype(np.float64) - 1).astype(dtype_of(kind))
    return values


TYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
LONGEST_HEADER = 100_000_000  # the limit of the reference implementation
MOST_AXES = 64  # the limit of NumPy


def read_safetensors(
    path: Path, wanted: frozenset[str]
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the wanted tensors, an empty array for each other one, and the metadata."""
    with open_regular(path, links=True) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LONGEST_HEADER, size - 8):
            raise ValueError(f"{path} is no safetensors file: header of {length} bytes")
        try:
            header = json.loads(file.read(length))
            metadata = dict(header.pop("__metadata__", {}))
        except (ValueError, AttributeError, TypeError, RecursionError) as unreadable:
            raise ValueError(
                f"{path} is no safetensors file: its header is no JSON"
            ) from unreadable
        tensors = {}
        for name, description in header.items():
            tensors[name] = np.empty(0)
            if name in wanted:
                kind, shape, start, stop = _parse_entry(path, name, description, size - 8 - length)
                file.seek(8 + length + start)
                data = np.fromfile(file, np.uint8, stop - start)
                if len(data) < stop - start:
                    raise ValueError(f"{path}: {name} ends too early")
                tensors[name] = _numbers(data, kind).reshape(shape)
    return tensors, metadata


def _parse_entry(path: Path, name: str, entry: Any, size: int) -> tuple[str, list[int], int, int]:
    """Return type, shape, start and stop of a tensor; raise ValueError if they do not agree."""
    try:
        code, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, start, stop]
    except (KeyError, TypeError, ValueError) as unreadable:
        raise ValueError(f"{path}: the entry of {name} describes no tensor") from unreadable
    if not isinstance(code, str) or code not in TYPES:
        raise ValueError(f"{path}: {name} must be one of {', '.join(TYPES)}; got {code}")
    if not all(type(each) is int and each >= 0 for each in numbers) or not start <= stop <= size:
        raise ValueError(f"{path}: the offsets of {name} are outside the file")
    if len(shape) > MOST_AXES:
        raise ValueError(f"{path}: {name} must have at most {MOST_AXES} axes; got {len(shape)}")
    if prod(shape) * dtype_of(TYPES[code]).itemsize != stop - start:
        raise ValueError(f"{path}: {name} of shape {shape} in {code} has {stop - start} bytes")
    return TYPES[code], shape, start, stop


def _numbers(data: Array, kind: str) -> Array:
    """Return little-endian bytes as numbers of a type."""
    dtype = dtype_of(kind)
    return data.view(f"<u{dtype.itemsize}").astype(f"u{dtype.itemsize}", copy=False).view(dtype)


WANTED = frozenset(name for names in NAMES.values() for name in names)


def load_data(
    path: str | Path,
    *,
    operation: Operation | str = LAYER_NORM,
    eps: float | None = None,
    dtype: str = "",
) -> Case:
    """Return a case of tensors in a file.

    Parameters
    ----------
    path : str or Path
        A ``.npz`` or ``.safetensors`` file with x, or ``input`` or ``hidden_states``, of any shape
        whose last axis is normalized. It may have gamma or ``weight``, beta or ``bias``, dy,
        ``grad`` or ``grad_output``, residual, dsum and eps; missing inputs are filled in. In .npz
        files, bfloat16 is stored as arrays of ml_dtypes, or as uint16 bits beside an array
        ``dtype`` of "bfloat16".
    operation : Operation or str
        Layer normalization, unless another is given.
    eps : float, optional
        By default, ``eps`` of the file, or of its metadata, or 1e-5.
    dtype : str
        Round all tensors to this type; by default, x has the type of the file.

    Returns
    -------
    Case
        For `check`, or as one of `own` for `verify`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import truenorm.verify as tv
    >>> x = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/rows.npz", hidden_states=x)
    ...     tv.load_data(f"{folder}/rows.npz").name
    'float32-own-rows-8x64'
    """
    path = Path(path)
    norm = require_norm(as_operation(operation), "a case of your own data", "enclosures")
    readers = {".npz": _read_npz, ".safetensors": _read_safetensors}
    if path.suffix.lower() not in readers:
        raise ValueError(f"data must end in {' or '.join(readers)}; got {path}")
    try:
        arrays, stored_eps, notes = readers[path.suffix.lower()](path)
    except OSError as unreadable:
        raise ValueError(
            f"cannot read {path}: {unreadable.strerror}; give another file"
        ) from unreadable
    made = f"tv.load_data({str(path.resolve())!r}{{operation}})"
    try:
        if dtype:
            arrays, stored = _rounded(arrays, dtype, norm)
            notes.append(f"{stored} rounded to {dtype}")
            made = f"{made[:-1]}, dtype={dtype!r})"
        x = next((arrays[name] for name in NAMES["x"] if name in arrays), np.empty(0))
        stem = re.sub(r"[^A-Za-z0-9.+-]+", "-", path.stem)[:40]
        shape = "x".join(map(str, x.shape))
        return case_from(
            arrays,
            eps=_eps(stored_eps) if eps is None else eps,
            operation=norm,
            name=f"{x.dtype.name}-{USER_FAMILY}-{stem}-{shape}",
            why=YOUR_DATA + path.name + (f" ({', '.join(notes)})" if notes else ""),
            made=made,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def listed_cases(
    shapes: Sequence[str], data: Sequence[Path], operation: Operation, dtypes: Sequence[str]
) -> list[Case]:
    """Return a case of each file of data and of each shape such as ``4x8``, in each type."""
    files = []
    for path in data:
        case = load_data(path, operation=operation)
        if case.dtype in dtypes:
            files.append(case)
            continue
        files += [load_data(path, operation=operation, dtype=dtype) for dtype in dtypes]
    return files + [
        case_of_shape(shape, dtype, operation=operation)
        for dtype in dtypes
        for shape in dict.fromkeys(map(parse_shape, shapes))
    ]


def _rounded(arrays: Mapping[str, Array], dtype: str, norm: Norm) -> tuple[dict[str, Array], str]:
    """Return the tensors in a type, parameters in that of the operation, and the type of x."""
    by_input = _by_input(arrays, norm)
    kinds = dict.fromkeys(norm.parameters, norm.parameter_type or dtype)
    rounded = {}
    for name, array in by_input.items():
        kind = kinds.get(name, dtype)
        with np.errstate(all="ignore"):
            rounded[name] = array.astype(dtype_of(kind))
            beyond = np.isfinite(array) & ~np.isfinite(rounded[name])
        if beyond.any():
            raise ValueError(f"{name} must be in the range of {kind}; got {array[beyond][0]}")
    return rounded, by_input["x"].dtype.name


def _eps(stored: object) -> float:
    """Return the eps of a file, or the default."""
    if stored is None:
        return EPS
    try:
        eps = float(stored)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        eps = np.nan
    if not 0 <= eps < np.inf:
        raise ValueError(f"eps must be finite and at least 0; got {stored!r}")
    return eps


def _read_npz(path: Path) -> tuple[dict[str, Array], Any, list[str]]:
    """Return the wanted arrays, eps, and notes."""
    with open_regular(path, links=True) as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"{path} is no .npz file, or it is cut: write it with np.savez")
        try:
            with zipfile.ZipFile(file) as archive:
                stored = {each.filename.removesuffix(".npy"): each for each in archive.infolist()}
                arrays: dict[str, Array] = {n: np.empty(0) for n in stored}
                for name in arrays.keys() & {*WANTED, "eps", "dtype"}:
                    arrays[name] = _read_npy(
                        archive, stored[name], os.fstat(file.fileno()).st_size
                    )
        except MemoryError:
            raise
        except Exception as unreadable:  # zipfile and zlib raise many kinds for damaged files
            raise ValueError(
                f"{path} is no .npz file without pickle, as np.savez writes it: {unreadable}"
            ) from unreadable
    settings = {n: array.tolist() for n, array in arrays.items() if n in ("eps", "dtype")}
    eps, dtype = map(settings.get, ("eps", "dtype"))
    # NumPy stores bfloat16 of ml_dtypes as 2 bytes without a type; no other type has that form.
    untyped = [n for n, array in arrays.items() if array.dtype == np.dtype("V2")]
    bits = [n for n, a in arrays.items() if a.dtype == np.uint16 and dtype == "bfloat16"]
    arrays |= {n: arrays[n].view(dtype_of("bfloat16")) for n in (*untyped, *bits)}
    return arrays, eps, ["2 bytes without a type read as bfloat16"] if untyped else []


def _read_npy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, size: int) -> Array:
    """Return an array of an archive of so many bytes.

    NumPy would allocate what the header claims before it reads the bytes that are there.
    """
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{entry.filename} must be stored or deflated")
    if entry.compress_size > size:
        raise ValueError(f"{entry.filename} must end in the file, got {entry.compress_size} bytes")
    with archive.open(entry) as member:
        shape, fortran_order, dtype = _read_npy_header(member)
        expected, rest = prod(shape) * dtype.itemsize, entry.file_size - member.tell()
        data = member.read(expected) if expected == rest else b""
    if len(data) != expected:
        raise ValueError(
            f"{entry.filename.removesuffix('.npy')} of shape {shape} in {dtype} must have "
            f"{expected} bytes, got {len(data) or rest}"
        )
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran_order else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _read_npy_header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type of an array that can be in a file without pickle."""
    versions = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        header = versions[np.lib.format.read_magic(member)](member)
    except (MemoryError, RecursionError) as nested:  # of the parser of Python
        raise ValueError("a header is no text of NumPy") from nested
    shape, _, dtype = header
    if len(shape) > MOST_AXES or not all(type(each) is int and each >= 0 for each in shape):
        raise ValueError(f"a shape must have at most {MOST_AXES} lengths, got {shape}")
    if dtype.hasobject or not dtype.itemsize:
        raise ValueError(f"a type must be one of numbers, got {dtype}")
    return header


def _read_safetensors(path: Path) -> tuple[dict[str, Array], Any, list[str]]:
    """Return the wanted tensors, eps (a tensor, or an entry of the metadata), and no notes."""
    arrays, metadata = read_safetensors(path, WANTED | {"eps"})
    eps = arrays.get("eps")
    if eps is None:
        return arrays, metadata.get("eps"), []
    return arrays, eps.item() if eps.size == 1 else eps, []
