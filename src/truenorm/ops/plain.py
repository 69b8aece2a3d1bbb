"""Whether arrays can go to kernels as they are, told by one look at each.

What is not plain need not be wrong: it is checked, and taken, by the general way.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT32, FloatFormat
from truenorm.kernels.storage import format_of

__all__ = ["are_plain_parameters", "is_plain", "is_plain_output", "native_format"]


@cache
def native_format(dtype: np.dtype[Any]) -> FloatFormat | None:
    """Return the format of a dtype of native byte order, or None if it is not one of the four."""
    return format_of(dtype) if dtype.isnative else None


def is_plain(array: Any) -> bool:
    """Tell whether an array is NumPy's, C-contiguous, aligned, and can be written to."""
    return type(array) is np.ndarray and array.flags.carray


def are_plain_parameters(gamma: Any, beta: Any, x: NDArray[Any], target: FloatFormat) -> bool:
    """Tell whether parameters are plain, of the length of rows of x, and both of its type.

    Or both of float32, if x is of 16 bits.
    """
    size, dtype = x.shape[-1], x.dtype
    same = True
    for given in (gamma, beta):
        if given is None:
            continue
        if type(given) is not np.ndarray or not given.flags.carray or given.shape != (size,):
            return False
        same = same and given.dtype == dtype
    return same or _are_of_float32(gamma, beta, target)


def _are_of_float32(gamma: Any, beta: Any, target: FloatFormat) -> bool:
    """Tell whether parameters are of float32, and x of less."""
    if target.precision >= FLOAT32.precision:
        return False
    return all(given is None or native_format(given.dtype) is FLOAT32 for given in (gamma, beta))


def is_plain_output(out: Any, like: NDArray[Any], *others: NDArray[Any] | None) -> bool:
    """Tell whether a result can be written there: none of the others may overlap it."""
    return (
        is_plain(out)
        and out.shape == like.shape
        and out.dtype == like.dtype
        and not any(each is not None and np.may_share_memory(out, each) for each in others)
    )
