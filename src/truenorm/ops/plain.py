"""Whether arrays can go to kernels as they are, told by one look at each.

What is not plain need not be wrong: it is checked, and taken, by the general way.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT32, FloatFormat
from truenorm.kernels.storage import format_of, writable_view

__all__ = ["native_format", "plain", "plain_output", "plain_parameters"]


@cache
def native_format(dtype: np.dtype[Any]) -> FloatFormat | None:
    """Return the format of a dtype of native byte order, or None if it is not one of the four."""
    return format_of(dtype) if dtype.isnative else None


def plain(array: Any) -> NDArray[Any] | None:
    """Return an array as kernels take it, if it is NumPy's, C-contiguous and aligned."""
    if type(array) is not np.ndarray:
        return None
    flags = array.flags
    if flags.carray:
        return array
    return writable_view(array) if flags.c_contiguous and flags.aligned else None


def plain_parameters(
    gamma: Any, beta: Any, x: NDArray[Any], target: FloatFormat
) -> tuple[NDArray[Any] | None, NDArray[Any] | None] | None:
    """Return parameters as kernels take them, if they have the length of rows of x and its type.

    Or are both of float32, if x is of 16 bits.
    """
    shape, dtype, same = x.shape[-1:], x.dtype, True
    scale = shift = None
    if gamma is not None:
        scale = plain(gamma)
        if scale is None or scale.shape != shape:
            return None
        same = scale.dtype == dtype
    if beta is not None:
        shift = plain(beta)
        if shift is None or shift.shape != shape:
            return None
        same = same and shift.dtype == dtype
    return (scale, shift) if same or _are_of_float32(gamma, beta, target) else None


def _are_of_float32(gamma: Any, beta: Any, target: FloatFormat) -> bool:
    """Tell whether parameters are of float32, and x of less."""
    if target.precision >= FLOAT32.precision:
        return False
    return all(given is None or native_format(given.dtype) is FLOAT32 for given in (gamma, beta))


def plain_output(
    out: Any, like: NDArray[Any], *others: NDArray[Any] | None
) -> NDArray[Any] | None:
    """Return where a result goes: a new array, or `out` if it overlaps none of the others."""
    if out is None:
        return np.empty(like.shape, like.dtype)
    if type(out) is not np.ndarray or not out.flags.carray:
        return None
    if out.shape != like.shape or out.dtype != like.dtype:
        return None
    apart = all(each is None or not np.may_share_memory(out, each) for each in (like, *others))
    return out if apart else None
