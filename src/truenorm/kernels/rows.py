"""Rows of arrays, and numbers of the four types in storage form.

float16, float32 and float64 are stored as arrays of these types. NumPy has no bfloat16: it is
stored as the uint16 of its bits, so that no kernel needs the package that defines it.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, FloatFormat

Stored = NDArray[Any]
"""An array in storage form."""

FORMATS = {each.name: each for each in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)}


@cache  # the name of a dtype takes longer than normalizing a row
def format_of(dtype: np.dtype[Any]) -> FloatFormat | None:
    """Return the format of a dtype of any byte order, or None if it is not one of the four."""
    return FORMATS.get(dtype.name)


def stored_view(array: NDArray[Any], float_format: FloatFormat) -> Stored:
    """Return a view of an array in storage form."""
    if float_format is not BFLOAT16:
        return array
    return array.view(np.dtype(np.uint16).newbyteorder(array.dtype.byteorder))


def as_float32(values: Stored, source: FloatFormat) -> NDArray[np.float32]:
    """Return values of at most float32 as float32; no copy if they are float32 already."""
    if source is BFLOAT16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32, copy=False)


def widen(
    values: Stored, source: FloatFormat, into: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the values as float64, in a new array or in `into`."""
    if source is BFLOAT16:
        values = as_float32(values, source)
    if into is None:
        return values.astype(np.float64)
    np.copyto(into, values)
    return into


Range = tuple[int, int]
"""Rows start to stop, as in a slice."""


class Rows:
    """The rows of an array along its normalized axes, in C order of the other axes.

    The array is not copied: a block of rows is gathered when it is read.

    Attributes
    ----------
    count, size : int
        Number of rows, and of the elements of each.
    float_format : FloatFormat
        Format of the elements.
    """

    def __init__(
        self, array: NDArray[Any], axes: Sequence[int], float_format: FloatFormat
    ) -> None:
        moved = stored_view(array, float_format)
        if axes[0] != array.ndim - len(axes):  # axes are sorted: these are not the last ones
            moved = np.moveaxis(moved, axes, range(-len(axes), 0))
        self._outer = moved.shape[: moved.ndim - len(axes)]
        self.count = math.prod(self._outer)
        self.size = math.prod(moved.shape[moved.ndim - len(axes) :])
        self.float_format = float_format
        self._moved = moved
        flat = moved.flags.c_contiguous or (len(axes) == 1 and moved.ndim == 2)
        self._flat = moved.reshape(self.count, self.size) if flat else None

    def read(self, start: int, stop: int) -> Stored:
        """Return rows start to stop as an array of two axes, as a view if possible."""
        if self._flat is not None:
            return self._flat[start:stop]
        gathered: Stored = self._moved[self._index(start, stop)]
        return gathered.reshape(stop - start, self.size)

    def write(self, start: int, stop: int, values: Stored) -> None:
        """Store rows start to stop."""
        if self._flat is not None:
            self._flat[start:stop] = values
        else:
            index = self._index(start, stop)
            self._moved[index] = values.reshape(self._moved[index].shape)

    @property
    def memory(self) -> Stored | None:
        """All rows as a view, if they are C-contiguous, aligned and in native byte order."""
        flat = self._flat
        if flat is None or not (flat.flags.c_contiguous and flat.flags.aligned):
            return None
        return flat if flat.dtype.isnative else None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in storage form."""
        return self._moved.dtype

    def _index(self, start: int, stop: int) -> tuple[Any, ...]:
        if not self._outer:
            return (np.newaxis,)
        return np.unravel_index(np.arange(start, stop), self._outer)


class Source:
    """Rows to be read in blocks, each C-contiguous and in native byte order.

    A block is a view of the memory if possible, and otherwise a copy.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._memory = rows.memory

    def block(self, start: int, stop: int) -> Stored:
        """Return some rows."""
        if self._memory is not None:
            return self._memory[start:stop]
        return _native(self._rows.read(start, stop))

    def block_beside(self, results: Stored, start: int, stop: int) -> Stored:
        """Return some rows, as a copy if they overlap the array of results."""
        rows = self.block(start, stop)
        return rows.copy() if np.may_share_memory(rows, results) else rows

    def copy(self, indices: NDArray[np.intp]) -> Stored:
        """Return copies of some rows."""
        if self._memory is not None:
            return self._memory[indices]
        rows = np.empty((len(indices), self._rows.size), self._rows.dtype.newbyteorder("="))
        for place, index in enumerate(indices.tolist()):
            rows[place] = self._rows.read(index, index + 1)[0]
        return rows


class Target:
    """Rows to be written in blocks, in place if possible."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._memory = rows.memory

    def block(self, start: int, stop: int) -> Stored:
        """Return an array to write some rows to; `done` must follow."""
        if self._memory is not None:
            return self._memory[start:stop]
        return np.empty((stop - start, self._rows.size), self._rows.dtype.newbyteorder("="))

    def done(self, start: int, stop: int, block: Stored) -> None:
        """Store a block that was written."""
        if self._memory is None:
            self._rows.write(start, stop, block)

    def write(self, indices: NDArray[np.intp], rows: Stored) -> None:
        """Write some rows."""
        if self._memory is not None:
            self._memory[indices] = rows
            return
        for index, row in zip(indices.tolist(), rows, strict=True):
            self._rows.write(index, index + 1, row[np.newaxis])


def _native(block: Stored) -> Stored:
    return np.array(block, block.dtype.newbyteorder("="), order="C")


def blocks_of(part: Range, rows: int) -> Iterator[Range]:
    """Yield the blocks of a part, of so many rows each."""
    start, stop = part
    for first in range(start, stop, rows):
        yield first, min(first + rows, stop)
