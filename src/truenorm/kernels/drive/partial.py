"""Backward over some rows of a batch: dx, and their share of dgamma and dbeta on the lattice."""

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.backend import Backend, Backward, ExactSums, RowSums, States
from truenorm.kernels.call import Call, Parameter, Settings
from truenorm.kernels.drive.backward import swept
from truenorm.kernels.drive.columns import SpecialColumns
from truenorm.kernels.drive.infinite import BesideInfinities, infinite_rows
from truenorm.kernels.lattice.digits import Digits, Number
from truenorm.kernels.lattice.terms import OnLattice, Terms
from truenorm.kernels.rows import Rows, Source
from truenorm.kernels.storage import Stored
from truenorm.kernels.sweeping import SweepsLike, summed

__all__ = ["Share", "backward"]

Float64 = NDArray[np.float64]


class Share(NamedTuple):
    """What some rows add to the sums over all rows."""

    dgamma: Number
    """One column more than there are: the sum of the units that terms were rounded to."""
    dbeta: Number
    of_dgamma: NDArray[np.uint8]
    of_dbeta: NDArray[np.uint8]
    """Bits for what is not finite among the terms: see `SpecialSum.flags`."""


def backward(
    backend: Backend,
    settings: Settings,
    dy: Rows,
    x: Rows,
    kept: Float64,
    gamma: Parameter,
    beta: Parameter,
    dx: Rows,
) -> Share:
    """Write dx, and return the share of these rows."""
    infinite = infinite_rows(settings.norm, x, kept)
    if len(infinite):
        others = BesideInfinities(settings.norm, infinite, dy, x, dx)
        found = backward(
            backend, settings, others.dy, others.x, kept[others.rows], gamma, beta, others.dx
        )
        others.write_dx()
        return found._replace(of_dgamma=found.of_dgamma | others.dgamma.flags)
    call = Call.of(settings, x, gamma, beta)
    level = _WithTerms(backend.backward(call, Source(dy)), backend.terms(call))
    is_own = settings.backend == backend.name
    sums, special = swept(call, level, dy, x, kept, gamma, dx, is_own=is_own)
    if special is None:
        special = SpecialColumns(call)
    dbeta = _dbeta(level, sums.rows, special, dy, x) if call.of_beta else Digits(call.size)
    return Share(sums.terms.number(), dbeta.number(), special.dgamma.flags, special.dbeta.flags)


@dataclass
class _Sums:
    """The sums of plain backward, of which dbeta is used, and those of the terms."""

    rows: RowSums
    terms: OnLattice

    def merge(self, other: "_Sums") -> None:
        """Add the sums over other rows."""
        self.rows.merge(other.rows)
        self.terms.merge(other.terms)


class _WithTerms(SweepsLike):
    """Backward that rounds the terms of each block of rows while it is in the cache."""

    def __init__(self, level: Backward[Any], terms: Terms[Any]) -> None:
        super().__init__(level)
        self._level, self._terms = level, terms
        self.adopt, self.look_again = level.adopt, level.look_again
        self.dgamma_again, self.dbeta_again = level.dgamma_again, level.dbeta_again

    def sums(self) -> _Sums:
        """Return sums over no rows."""
        return _Sums(self._level.sums(), self._terms.sums())

    def look(
        self, dy: Stored, x: Stored, kept: Float64, dx: Stored, sums: _Sums, states: States
    ) -> bool:
        """Write dx and what became of rows, and add to the sums; return whether some are left."""
        both = sums.rows, sums.terms
        return self._terms.look(self._level, dy, x, kept, dx, both, states)


def _dbeta(level: _WithTerms, sums: RowSums, special: SpecialColumns, dy: Rows, x: Rows) -> Digits:
    """Return dbeta without any error, by a second sweep where the first was not exact.

    Columns with terms that are not finite are left out of that.
    """
    found = cast(ExactSums, sums.dbeta).as_digits()
    if found is not None:
        return found
    total = Digits(x.size)
    left = np.flatnonzero(special.dbeta.none)
    while len(left):
        sweep = level.dbeta_again(left)
        assert sweep is not None
        better = cast(ExactSums, summed(sweep, Source(dy), Source(x))).as_digits()
        assert better is not None
        total.put(better.number(), sweep.columns)
        left = left[len(sweep.columns) :]
    return total
