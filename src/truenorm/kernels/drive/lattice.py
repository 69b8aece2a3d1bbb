"""A second sweep for columns of dgamma, on the lattice: of all columns, some are asked for."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.backend import Backward
from truenorm.kernels.lattice.rounding import columns_and_error, round_columns
from truenorm.kernels.lattice.terms import OnLattice, Terms
from truenorm.kernels.rounding import Tested, round_to
from truenorm.kernels.storage import Stored
from truenorm.kernels.sweeping import SweepsLike

__all__ = ["LatticeColumns"]

Columns = NDArray[np.intp]


class LatticeColumns(SweepsLike):
    """Some columns, of a call without special values."""

    def __init__(self, level: Backward[Any], terms: Terms[Any], columns: Columns) -> None:
        super().__init__(level)
        self.columns = columns
        self._terms = terms

    @property
    def would_compile(self) -> bool:
        """Whether it means compiling."""
        return self._terms.would_compile

    def sums(self) -> "LatticeSums":
        """Return sums over no rows."""
        return LatticeSums(self._terms.sums(), self.columns)

    def add(self, dy: Stored, x: Stored, sums: "LatticeSums") -> None:
        """Add a block of rows."""
        self._terms.add(dy, x, None, sums.terms)


class LatticeSums:
    """The sums of all columns, of which some are rounded."""

    def __init__(self, terms: OnLattice, columns: Columns) -> None:
        self.terms, self._columns = terms, columns

    def merge(self, other: "LatticeSums") -> None:
        """Add the sums over other rows."""
        self.terms.merge(other.terms)

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the columns that are known well enough."""
        columns, error = columns_and_error(self.terms.number())
        some = columns._replace(digits=columns.digits[:, self._columns])
        values, undecided = round_columns(some, error, 1, target)
        refused = np.zeros(len(values), bool)
        refused[undecided] = True
        return Tested(round_to(values, target), refused)
