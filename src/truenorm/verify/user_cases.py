"""A case of one's own: of a shape, or of arrays that are given; what is missing is filled in."""

import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from truenorm.verify.cases.families import EPS, PLAIN, PLAIN_X
from truenorm.verify.cases.patterns import Pattern, filled
from truenorm.verify.enclosures import unsupported_reason
from truenorm.verify.operation import Case, Input, Operation
from truenorm.verify.operations import LAYER_NORM
from truenorm.verify.operations.norms import Norm
from truenorm.verify.types import FORMATS, Array, dtype_of

USER_FAMILY = "own"
"""The family of such cases: they are measured by bounds, and integers are asked for some rows."""
NAMES = {
    "x": ("x", "input", "hidden_states"),
    "residual": ("residual",),
    "gamma": ("gamma", "weight"),
    "beta": ("beta", "bias"),
    "dy": ("dy", "grad", "grad_output"),
    "dsum": ("dsum",),
}
"""By input, the names under which it is looked for."""
FILLING: Mapping[str, Pattern] = {
    **PLAIN,
    "x": PLAIN_X[1],
    "residual": "normal",
    "dsum": "normal",
}


def is_user_case(case: Case) -> bool:
    """Tell whether a case is measured this way."""
    return case.family == USER_FAMILY


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the shape that is written like 4096x5120.

    Examples
    --------
    >>> parse_shape("8x1024x4096")
    (8, 1024, 4096)
    """
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"shape is {text!r}; write it like 4096x5120, or 8x1024x4096")
    return tuple(map(int, parts))


def case_of_shape(
    shape: Sequence[int], dtype: str = "float32", *, operation: Operation = LAYER_NORM
) -> Case:
    """Return ordinary rows of a shape, the same ones each time.

    Parameters
    ----------
    shape : sequence of int
        The last is D; the product of the others is the number of rows.
    dtype : str
        float16, bfloat16, float32 or float64.
    operation : Operation
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
    if dtype not in FORMATS:
        raise ValueError(f"dtype is {dtype!r}; it is one of {', '.join(FORMATS)}")
    if not shape or min(shape) < 1:
        raise ValueError(f"shape is {tuple(shape)}; give numbers above zero")
    *rows, size = shape
    words = "x".join(map(str, shape))
    name = f"{dtype}-{USER_FAMILY}-{words}"
    made = f"tv.case_of_shape({tuple(shape)}, {dtype!r}{{operation}})"
    x = filled(FILLING["x"], dtype, (prod(rows), size), f"{name} x")
    return case_from(
        {"x": x}, name=name, why=f"your shape, {words}", made=made, operation=operation
    )


def case_from(
    arrays: Mapping[str, Array],
    *,
    eps: float = EPS,
    operation: Operation = LAYER_NORM,
    name: str = "",
    why: str = "your data",
    made: str = "",
) -> Case:
    """Return a case of arrays that are given; what is missing is filled in, the same each time.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        x, and any of gamma, beta, dy, residual and dsum; or by the names of PyTorch, such as
        ``hidden_states``, ``weight``, ``bias`` and ``grad``. Other names are passed over.
    eps : float
    operation : Operation
        Layer normalization, unless another is given.
    name, why : str
        How reports call it, and what it is.
    made : str
        The Python that makes it again, for reproducers.

    Returns
    -------
    Case
        One for `truenorm.verify.check`, or for ``own`` of `truenorm.verify.verify`.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm.verify as tv
    >>> rows = np.random.default_rng(0).normal(size=(2, 3, 64)).astype(np.float32)
    >>> tv.case_from({"hidden_states": rows}).shape
    (6, 64)
    """
    given = _by_input(arrays, operation)
    x = given["x"]
    dtype = x.dtype.name
    if dtype not in FORMATS:
        raise ValueError(f"x is {dtype}; it is one of {', '.join(FORMATS)}")
    if x.ndim == 0 or x.size == 0:
        raise ValueError(f"x has the shape {x.shape}; it needs rows of at least one element")
    name = name or f"{dtype}-{USER_FAMILY}-data-{'x'.join(map(str, x.shape))}"
    inputs: dict[str, Array | None] = {}
    for each in operation.inputs:
        kind = _type_of(each, operation, dtype)
        shape = x.shape[-1:] if each.role == "parameter" else x.shape
        if each.name in given:
            array = _checked(each.name, given[each.name], kind, shape)
        else:
            array = _filled(each.name, kind, shape, f"{name} {each.name}", operation)
        inputs[each.name] = array if each.role == "parameter" else array.reshape(-1, shape[-1])
    case = Case(operation, name, dtype, inputs, eps, family=USER_FAMILY, why=why, made=made)
    if refused := unsupported_reason(case):
        raise ValueError(refused)
    return case


def _by_input(arrays: Mapping[str, Array], operation: Operation) -> dict[str, Array]:
    """Return what is given by the names of inputs."""
    found = {}
    for each in operation.inputs:
        names = [name for name in NAMES.get(each.name, (each.name,)) if name in arrays]
        if len(names) > 1:
            raise ValueError(f"{' and '.join(names)} are both there: which is {each.name}?")
        if names:
            found[each.name] = np.asarray(arrays[names[0]])
    if "x" not in found:
        there = ", ".join(arrays) or "nothing"
        raise ValueError(f"there is no x, nor {' nor '.join(NAMES['x'][1:])}; there is {there}")
    return found


def _type_of(each: Input, operation: Operation, dtype: str) -> str:
    """Return the type that an input should have."""
    of_parameters = operation.parameter_type if isinstance(operation, Norm) else ""
    return (each.role == "parameter" and of_parameters) or dtype


def _checked(name: str, array: Array, kind: str, shape: tuple[int, ...]) -> Array:
    """Return an array of the type and shape that is wanted."""
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {array.shape}; x asks for {shape}")
    if array.dtype.name != kind:
        hint = f"; the operation's parameters={array.dtype.name} says that it is so"
        hint = hint if name in ("gamma", "beta") else ""
        raise ValueError(f"{name} is {array.dtype.name}, and should be {kind}{hint}")
    return np.ascontiguousarray(array)


def _filled(
    name: str, kind: str, shape: tuple[int, ...], seed: str, operation: Operation
) -> Array:
    """Return what the families of cases have there."""
    values = filled(FILLING[name], kind, shape, seed)
    if name == "gamma" and isinstance(operation, Norm) and operation.gain == "zero-centred":
        return (values.astype(np.float64) - 1).astype(dtype_of(kind))
    return values


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


WANTED = frozenset(name for names in NAMES.values() for name in names)


def load_data(
    path: str | Path, *, operation: Operation = LAYER_NORM, eps: float | None = None
) -> Case:
    """Return a case of saved tensors.

    Parameters
    ----------
    path : str or Path
        A ``.npz`` or ``.safetensors`` file with x, or ``input`` or ``hidden_states``, of any shape
        whose last axis is normalized. It may have gamma or ``weight``, beta or ``bias``, dy,
        ``grad`` or ``grad_output``, residual, dsum and eps; what is missing is filled in. bfloat16
        is stored in .npz as its bits, in uint16, beside an array ``dtype`` that says "bfloat16".
    operation : Operation
        Layer normalization, unless another is given.
    eps : float, optional
        By default, ``eps`` of the file, or of its metadata, or 1e-5.

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
    readers = {".npz": _read_npz, ".safetensors": _read_safetensors}
    if path.suffix.lower() not in readers:
        raise ValueError(f"data is {path}; it ends in {' or '.join(readers)}")
    try:
        arrays, said = readers[path.suffix.lower()](path)
    except OSError as unreadable:
        raise ValueError(f"cannot read {path}: {unreadable.strerror}") from unreadable
    try:
        x = next(arrays[name] for name in NAMES["x"] if name in arrays)
    except StopIteration:
        x = np.empty(0)
    words = re.sub(r"[^A-Za-z0-9.+-]+", "-", path.stem)[:40]
    shape = "x".join(map(str, x.shape))
    try:
        return case_from(
            arrays,
            eps=_eps(said) if eps is None else eps,
            operation=operation,
            name=f"{x.dtype.name}-{USER_FAMILY}-{words}-{shape}",
            why=f"your data, {path.name}",
            made=f"tv.load_data({str(path.resolve())!r}{{operation}})",
        )
    except ValueError as refused:
        raise ValueError(f"{path}: {refused}") from refused


def _eps(said: object) -> float:
    """Return the eps that a file says, if it says one."""
    if said is None:
        return EPS
    try:
        eps = float(said)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        eps = np.nan
    if not 0 <= eps < np.inf:
        raise ValueError(f"eps is {said!r}; it is a number from 0 on")
    return eps


def _read_npz(path: Path) -> tuple[dict[str, Array], Any]:
    """Return the arrays that are wanted, and eps."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {n: file[n] if n in WANTED else np.empty(0) for n in file.files}
            eps, dtype = (file[n].item() if n in arrays else None for n in ("eps", "dtype"))
    except (ValueError, EOFError, TypeError, zipfile.BadZipFile) as unreadable:
        raise ValueError(f"{path} is no .npz file without pickle: {unreadable}") from unreadable
    if dtype == "bfloat16":
        bits = {n: array for n, array in arrays.items() if array.dtype == np.uint16}
        arrays |= {n: array.view(dtype_of("bfloat16")) for n, array in bits.items()}
    return arrays, eps


def _read_safetensors(path: Path) -> tuple[dict[str, Array], Any]:
    """Return the tensors that are wanted, and eps: a tensor, or said in the metadata."""
    arrays, metadata = read_safetensors(path, WANTED | {"eps"})
    eps = arrays.get("eps")
    if eps is None:
        return arrays, metadata.get("eps")
    return arrays, eps.item() if eps.size == 1 else eps
