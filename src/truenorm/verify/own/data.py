"""Saved tensors as a case: from a file of NumPy, or of safetensors."""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from truenorm.verify.cases.family import EPS
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations import LAYER_NORM
from truenorm.verify.own.cases import NAMES, OWN, case_from
from truenorm.verify.own.safetensors import read_safetensors
from truenorm.verify.types import Array, dtype_of

__all__ = ["load_data"]

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
            name=f"{x.dtype.name}-{OWN}-{words}-{shape}",
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
