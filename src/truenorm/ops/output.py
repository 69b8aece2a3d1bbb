"""What results are: a new array or the one that was passed as `out`, and their types."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.rounding import round_to
from truenorm.kernels.storage import format_of
from truenorm.ops.arrays import is_masked

__all__ = ["as_parameter", "output_for"]


def output_for(x: NDArray[Any], out: Any, others: dict[str, NDArray[Any] | None]) -> NDArray[Any]:
    """Return the array to write to: `out`, if it fits and overlaps none of the others."""
    if out is None:
        return np.empty(x.shape, x.dtype.newbyteorder("="))
    if not isinstance(out, np.ndarray) or is_masked(out):
        raise TypeError(f"out is a {type(out).__name__}: pass a NumPy array")
    if out.shape != x.shape or format_of(out.dtype) != format_of(x.dtype):
        raise ValueError(
            f"out has shape {out.shape} and type {out.dtype} but the result has shape {x.shape} "
            f"and type {x.dtype}"
        )
    if not out.flags.writeable:
        raise ValueError("out is read-only: pass an array that can be written to")
    if not (out.flags.c_contiguous or _elements_lie_apart(out)):
        raise ValueError(
            f"out has shape {out.shape} and strides {out.strides}, so that its elements may "
            "overlap each other: pass an array in which each has a place of its own"
        )
    for name, other in others.items():
        if other is not None and np.may_share_memory(out, other) and np.shares_memory(out, other):
            raise ValueError(
                f"out overlaps {name}, which backward still needs: pass another array"
            )
    return out


def _elements_lie_apart(array: NDArray[Any]) -> bool:
    """Tell whether each step along an axis leads beyond all that smaller steps can reach.

    Then no two elements share memory. Whatever slicing, transposing and diagonals make of an
    ordinary array lies like that; a layout that does not, and yet has no overlap, can only be made
    by hand, and telling it from the others is a hard problem (bounded Diophantine equations).
    """
    reach = array.itemsize
    steps = zip(array.strides, array.shape, strict=True)
    for step, length in sorted((abs(step), length) for step, length in steps if length > 1):
        if step < reach:
            return False
        reach += step * (length - 1)
    return True


def as_parameter(
    values: NDArray[np.float64] | None, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    """Give a parameter's gradient its type and shape; the values are of that type already."""
    target = format_of(dtype)
    assert values is not None
    assert target is not None
    return round_to(values, target).view(dtype.newbyteorder("=")).reshape(shape)
