"""dgamma on the lattice: bins that grow while backward sweeps, one for each unit of rows."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.call import Call
from truenorm.kernels.fused.blocks import coded
from truenorm.kernels.fused.compiled.lattice.sweep import backward_with_terms
from truenorm.kernels.fused.compiled.lattice.terms import (
    ALL_DONE,
    FOR_INTEGERS,
    add_terms,
)
from truenorm.kernels.fused.first_call.loading import needs_compiling
from truenorm.kernels.fused.scratch import aligned, scratch, scratch_of_terms
from truenorm.kernels.fused.sums.columns import Sums
from truenorm.kernels.fused.sweep import Sweep
from truenorm.kernels.ground import DONE, HIGH
from truenorm.kernels.lattice.digits import Number
from truenorm.kernels.lattice.terms import TermSums, exact_terms
from truenorm.kernels.lattice.units import NO_TERMS, half_exponent_of_eps, half_exponent_of_size
from truenorm.kernels.rounding import canonical_nan
from truenorm.kernels.storage import Stored, widen

__all__ = ["Bins", "Terms"]

Float64 = NDArray[np.float64]
States = NDArray[np.uint8]

BINS = 8
"""Units that have a bin at the same time: rows of ordinary data have two or three."""


class Bins:
    """Sums of terms in units, as float64 numbers without error, and what was cleared from them."""

    def __init__(self, size: int) -> None:
        self.sums = TermSums(size)
        self.units = np.full(BINS, NO_TERMS)
        self.counts = np.zeros(BINS, np.int64)
        self.array = aligned(BINS * 2 * size).reshape(BINS, 2, size)
        self.array[...] = 0
        self.scratch = aligned(scratch_of_terms(size))
        self._order = list(range(BINS))

    def make_room(self, unit: int) -> None:
        """Have an empty bin for a unit: the one that has it, or that was emptied longest ago."""
        having = np.flatnonzero(self.units == unit).tolist()
        k = having[0] if having else self._order[0]
        self._order.remove(k)
        self._order.append(k)
        self._clear(k)
        self.units[k] = unit

    def _clear(self, k: int) -> None:
        if self.counts[k]:
            high, low = self.array[k]
            self.sums.add(high * 2.0**-HIGH, low, int(self.units[k]), int(self.counts[k]))
            self.array[k] = 0
            self.counts[k] = 0

    def merge(self, other: "Bins") -> None:
        """Add the sums over other rows."""
        other._clear_all()
        self.sums.merge(other.sums)

    def number(self) -> Number:
        """Return the sums in their one form."""
        self._clear_all()
        return self.sums.number()

    def _clear_all(self) -> None:
        for k in range(BINS):
            self._clear(k)


class Terms:
    """dgamma of a call on the lattice."""

    def __init__(self, call: Call) -> None:
        self._call = call

    @cached_property
    def _numbers(self) -> NDArray[np.float64]:
        eps, size = self._call.eps, self._call.size
        return np.array([eps, half_exponent_of_eps(eps), half_exponent_of_size(size)])

    @cached_property
    def would_compile(self) -> bool:
        """Whether it means compiling."""
        none = np.empty((0, self._call.size), canonical_nan(self._call.target).dtype)
        return needs_compiling(lambda: self.add(none, none, None, self.sums()))

    def sums(self) -> Bins:
        """Return sums over no rows."""
        return Bins(self._call.size)

    def look(
        self,
        level: Sweep,
        dy: Stored,
        x: Stored,
        kept: Float64,
        dx: Stored,
        sums: tuple[Sums, Bins],
        states: States,
    ) -> bool:
        """Do what the level's `look` does with the first of the sums, and add to the second."""
        of_rows, bins = sums
        given = level.coded(dy), level.coded(x), kept
        found = level.coded(dx), states
        held = bins.units, bins.counts, bins.array
        start = left = 0
        while start < len(x):
            row, stop, *noted = backward_with_terms(
                given,
                level.given_gamma,
                self._numbers,
                level.centred,
                found,
                of_rows.array,
                held,
                start,
                scratch(),
                bins.scratch,
            )
            left += of_rows.note(stop - start, (noted[0], noted[1], noted[2]))
            if row < stop:
                self.add(dy[row:stop], x[row:stop], states[row:stop], bins)
            start = stop
        return left > 0

    def add(self, dy: Stored, x: Stored, states: States | None, sums: Bins) -> None:
        """Add a block of rows with a result and finite dy; or those of it that are such."""
        call = self._call
        if states is None:
            states = np.full(len(x), DONE, np.uint8)
        coded_dy, coded_x = coded(dy, call.target), coded(x, call.target)
        start = 0
        while True:
            why, start, unit = add_terms(
                coded_dy,
                coded_x,
                states,
                start,
                self._numbers,
                True if call.norm.centred else None,
                sums.units,
                sums.counts,
                sums.array,
                sums.scratch,
            )
            if why == ALL_DONE:
                return
            if why == FOR_INTEGERS:
                self._add_exactly(dy[start], x[start], unit, sums)
                start += 1
            else:
                sums.make_room(unit)

    def _add_exactly(self, dy: Stored, x: Stored, unit: int, sums: Bins) -> None:
        """Add a row in integers."""
        slopes, values = (widen(part, self._call.target) for part in (dy, x))
        columns = np.arange(self._call.size)
        high, low = exact_terms(slopes, values, columns, unit, self._call)
        sums.sums.add(np.array(high), np.array(low), unit, 1)
