"""A case of one's own: of a shape, or of arrays that are given; what is missing is filled in."""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from truenorm.verify.cases.family import EPS, PLAIN, PLAIN_X
from truenorm.verify.cases.patterns import Pattern, filled
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations import LAYER_NORM
from truenorm.verify.operations.norms import Norm
from truenorm.verify.own.norms import refusal
from truenorm.verify.parts import Input
from truenorm.verify.types import FORMATS, Array, dtype_of

__all__ = ["NAMES", "OWN", "case_from", "case_of_shape", "is_own", "shape_of"]

OWN = "own"
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


def is_own(case: Case) -> bool:
    """Tell whether a case is measured this way."""
    return case.family == OWN


def shape_of(text: str) -> tuple[int, ...]:
    """Return the shape that is written like 4096x5120.

    Examples
    --------
    >>> shape_of("8x1024x4096")
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
    name = f"{dtype}-{OWN}-{words}"
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
    name = name or f"{dtype}-{OWN}-data-{'x'.join(map(str, x.shape))}"
    inputs: dict[str, Array | None] = {}
    for each in operation.inputs:
        kind = _type_of(each, operation, dtype)
        shape = x.shape[-1:] if each.role == "parameter" else x.shape
        if each.name in given:
            array = _checked(each.name, given[each.name], kind, shape)
        else:
            array = _filled(each.name, kind, shape, f"{name} {each.name}", operation)
        inputs[each.name] = array if each.role == "parameter" else array.reshape(-1, shape[-1])
    case = Case(operation, name, dtype, inputs, eps, family=OWN, why=why, made=made)
    if refused := refusal(case):
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
