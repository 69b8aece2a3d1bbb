"""Numbers of the four types as kernels hold them.

float16, float32 and float64 are held as such. bfloat16 is not a type of NumPy; it is held as the
uint16 of its bits, so that no kernel needs the package that defines it.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, FloatFormat

__all__ = ["Stored", "as_float32", "format_of", "stored_view", "widen"]

Stored = NDArray[Any]
"""An array of one of the types, as held: see above."""

FORMATS = {target.name: target for target in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)}


@cache  # finding the name of a dtype takes longer than normalizing a row
def format_of(dtype: np.dtype[Any]) -> FloatFormat | None:
    """Return the format of a dtype of any byte order, or None if it is not one of the four."""
    return FORMATS.get(dtype.name)


def stored_view(array: NDArray[Any], target: FloatFormat) -> Stored:
    """Return the same memory, as kernels hold it."""
    if target is not BFLOAT16:
        return array
    return array.view(np.dtype(np.uint16).newbyteorder(array.dtype.byteorder))


def as_float32(values: Stored, source: FloatFormat) -> NDArray[np.float32]:
    """Return values of at most float32 as that, exactly; a view if they are that already."""
    if source is BFLOAT16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32, copy=False)


def widen(
    values: Stored, source: FloatFormat, into: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the values as float64, exactly, in a new array or in the one given."""
    if source is BFLOAT16:
        values = as_float32(values, source)
    if into is None:
        return values.astype(np.float64)
    np.copyto(into, values)
    return into
