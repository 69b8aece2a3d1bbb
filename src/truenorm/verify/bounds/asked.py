"""The case that is made of arrays as somebody has them, of any rank and mixed types."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.operations.norms import Norm
from truenorm.verify.own.cases import OWN
from truenorm.verify.tensors.pytorch import array_of
from truenorm.verify.types import FORMATS, Array

__all__ = ["asked"]

NAME = "what is given"


def asked(norm: Norm, given: Mapping[str, Any], eps: float) -> Case:
    """Return the case of arrays or tensors; None is what is not given.

    A parameter may be absent. A gradient that is not given is zero, which takes no memory.
    """
    arrays = {name: array_of(each) for name, each in given.items() if each is not None}
    names = [each.name for each in norm.inputs]
    if unknown := arrays.keys() - set(names):
        raise ValueError(f"{norm.name} takes no {' and no '.join(sorted(unknown))}")
    for name in norm.inputs_of("data"):
        if name not in arrays:
            raise ValueError(f"{norm.name} needs {name}")
    for name, array in arrays.items():
        if array.dtype.name not in FORMATS:
            raise ValueError(f"{name} is {array.dtype.name}; it is one of {', '.join(FORMATS)}")
    x = arrays["x"]
    if x.ndim == 0 or x.size == 0:
        raise ValueError(f"x has the shape {x.shape}; it needs rows of at least one element")
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps is {eps}; it is a number from 0 on")
    if norm.sum == "unrounded" and FORMATS[x.dtype.name].precision > 11:
        raise ValueError(f"an unrounded sum is for types of 16 bits, and not for {x.dtype.name}")
    inputs = {name: _as_rows(norm, name, arrays.get(name), x) for name in names}
    return Case(norm, NAME, x.dtype.name, inputs, float(eps), family=OWN, drawn=True)


def _as_rows(norm: Norm, name: str, array: Array | None, x: Array) -> Array | None:
    """Return rows, or a parameter, of the shape that x asks for."""
    size = x.shape[-1]
    if not norm.is_rows(name):
        if array is not None and array.shape != (size,):
            raise ValueError(f"{name} has the shape {array.shape}; x asks for {(size,)}")
        return array
    if array is None:
        return np.broadcast_to(np.zeros(1, x.dtype), (x.size // size, size))
    if array.shape != x.shape or array.dtype != x.dtype:
        raise ValueError(
            f"{name} is {array.dtype.name} of the shape {array.shape}; "
            f"it should be as x, {x.dtype.name} of the shape {x.shape}"
        )
    return array.reshape(-1, size)
