"""How a row is divided: which elements share a mean and an r, and which have which gamma.

A row of a case is a sample. It is divided into units, each of which has one mean and one r.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from truenorm.verify.types import Array


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
    >>> two_groups.shape(two_groups.columns)
    (2, 1, 1)
    """

    axes: str
    units: str
    columns: str
    sizes: Mapping[str, int]

    def shape(self, names: str) -> tuple[int, ...]:
        """Return the sizes of some axes, and 1 for all others."""
        kept = names.split()
        return tuple(self.sizes[name] if name in kept else 1 for name in self.axes.split())

    def without(self, names: str) -> tuple[int, ...]:
        """Return the numbers of all other axes; rows are axis 0."""
        left_out = names.split()
        numbered = enumerate(self.axes.split(), 1)
        return tuple(number for number, name in numbered if name not in left_out)

    @property
    def count(self) -> int:
        """The units of a row."""
        return prod(self.shape(self.units))

    @property
    def unit_size(self) -> int:
        """The elements of a unit."""
        return prod(self.shape(self.axes)) // max(self.count, 1)

    @property
    def width(self) -> int:
        """The elements of gamma."""
        return prod(self.shape(self.columns))

    @property
    def _unit_first(self) -> tuple[int, ...]:
        """The axes: rows, those of units, and those within a unit."""
        within = self.without(self.units)
        return (0, *(each for each in self.without("") if each not in within), *within)

    def units_of(self, rows: Array) -> Array:
        """Return rows of shape (R, D) as (R times units, elements of a unit)."""
        moved = rows.reshape(-1, *self.shape(self.axes)).transpose(self._unit_first)
        return moved.reshape(-1, self.unit_size)

    def rows_of(self, units: Array) -> Array:
        """Return units as rows: the inverse of `units_of`."""
        shape = (-1, *self.shape(self.axes))
        moved = units.reshape([shape[axis] for axis in self._unit_first])
        return moved.transpose(np.argsort(self._unit_first)).reshape(len(moved), -1)
