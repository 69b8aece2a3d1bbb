"""How a row is divided: which elements share a mean and an r, and which have which gamma.

A row of a case is a sample. It is divided into units, each of which has one mean and one r.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.types import Array

Places = NDArray[np.intp]


@dataclass(frozen=True)
class Geometry:
    """Axes of a row by name, the slowest first, separated by spaces.

    Attributes
    ----------
    axes : str
        The axes of a row: ``g c s`` are groups, the channels of a group, and the places of a
        channel.
    units : str
        Those that number the units.
    columns : str
        Those that number the elements of gamma.
    sizes : mapping of str to int
        The size of each axis.

    Examples
    --------
    >>> two_groups = Geometry("g c s", "g", "g c", {"g": 2, "c": 1, "s": 2})
    >>> two_groups.units_of(np.arange(4)[np.newaxis]).tolist()
    [[0, 1], [2, 3]]
    >>> two_groups.places.tolist()
    [[0, 0], [1, 1]]
    """

    axes: str
    units: str
    columns: str
    sizes: Mapping[str, int]

    def _shape(self, names: str) -> tuple[int, ...]:
        return tuple(self.sizes[name] for name in names.split())

    @property
    def count(self) -> int:
        """The units of a row."""
        return prod(self._shape(self.units))

    @property
    def unit_size(self) -> int:
        """The elements of a unit."""
        return prod(self._shape(self.axes)) // max(self.count, 1)

    @property
    def width(self) -> int:
        """The elements of gamma."""
        return prod(self._shape(self.columns))

    @cached_property
    def _order(self) -> Places:
        """The elements of a row, unit by unit."""
        names = self.axes.split()
        inner = [name for name in names if name not in self.units.split()]
        moved = [names.index(name) for name in (*self.units.split(), *inner)]
        shape = self._shape(self.axes)
        return np.arange(prod(shape)).reshape(shape).transpose(moved).reshape(-1)

    @cached_property
    def _back(self) -> Places:
        return np.argsort(self._order)

    @cached_property
    def places(self) -> Places:
        """The element of gamma that each element of each unit has."""
        columns = self.columns.split()
        index = np.arange(self.width).reshape(self._shape(self.columns))
        spread = index[
            tuple(slice(None) if name in columns else np.newaxis for name in self.axes.split())
        ]
        row = np.broadcast_to(spread, self._shape(self.axes)).reshape(-1)
        return row[self._order].reshape(self.count, self.unit_size)

    @cached_property
    def by_column(self) -> Places:
        """For each element of gamma: the places, in units one after the other, that have it."""
        return np.argsort(self.places.reshape(-1), kind="stable").reshape(self.width, -1)

    def units_of(self, rows: Array) -> Array:
        """Return rows of shape (R, D) as (R times units, elements of a unit)."""
        units: Array = rows[:, self._order].reshape(len(rows) * self.count, self.unit_size)
        return units

    def rows_of(self, units: Array) -> Array:
        """Return units as rows: the inverse of `units_of`, also with more axes."""
        rest = units.shape[2:]
        rows: Array = units.reshape(-1, self.count * self.unit_size, *rest)[:, self._back]
        return rows

    def of_columns(self, rows: Array | None, default: float) -> Array:
        """Return the numbers of each element, from one number a column: (P,) or (R, P)."""
        if rows is None:
            return np.full((1, 1), default)
        if rows.ndim == 1:
            units: Array = rows[self.places]
            return units
        spread: Array = rows[:, self.places]
        return spread.reshape(-1, self.unit_size)
