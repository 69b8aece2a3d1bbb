"""Fixed-point sums of dgamma by the C core, for the driver: blocks of rows.

Whole calls on ordinary arrays do not come here: see `partials.backward`.
"""

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.backend import Backend
from truenorm.kernels.call import Call
from truenorm.kernels.ground import DONE
from truenorm.kernels.lattice.digits import Number, canonical
from truenorm.kernels.lattice.terms import AfterLevel, OnLattice
from truenorm.kernels.native import _core
from truenorm.kernels.native.levels import mode_of_types
from truenorm.kernels.storage import Stored

__all__ = ["TermSums", "Terms"]

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]
States = NDArray[np.uint8]


class TermSums:
    """Digits that are not carried yet, and the sums of rows that the core left undecided."""

    def __init__(self, size: int, undecided: OnLattice) -> None:
        self.digits = np.zeros((_core.PLACES, size + 1), np.int64)
        self.undecided = undecided

    def merge(self, other: "TermSums") -> None:
        """Add the sums over other rows."""
        self.digits += other.digits
        self.undecided.merge(other.undecided)

    def number(self) -> Number:
        """Return the sums in canonical form; the last column is the sum of all units."""
        return canonical(_core.FIRST_PLACE, self.digits.copy()).plus(self.undecided.number())


class Terms(AfterLevel):
    """dgamma of a call in fixed point; the reference continues where tier 2 is undecided."""

    def __init__(self, call: Call, reference: Backend) -> None:
        self._call = call
        self._reference = reference.terms(call)
        centred = _core.CENTRED if call.norm.centred else 0
        self._mode = centred | mode_of_types(call.target)

    def sums(self) -> TermSums:
        """Return zeroed accumulators."""
        return TermSums(self._call.size, self._reference.sums())

    def add(self, dy: Stored, x: Stored, states: States | None, sums: TermSums) -> None:
        """Add the rows that have a result and finite dy."""
        if len(x) == 0:
            return
        if states is None:
            states = np.full(len(x), DONE, np.uint8)
        undecided = np.zeros(len(x), np.uint8)
        eps = self._call.eps
        if _core.add_terms(dy, x, states, undecided, sums.digits, eps, self._mode):
            some = undecided != 0
            self._reference.add(dy[some], x[some], None, sums.undecided)
