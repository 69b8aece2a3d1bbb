"""The terms dy*xhat of some rows as integers, and their sum: dgamma on the lattice (L2)."""

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import ExactRow
from truenorm.kernels.call import Call
from truenorm.kernels.ground import HIGH
from truenorm.kernels.lattice.digits import Digits, Number
from truenorm.kernels.lattice.units import NO_TERMS
from truenorm.kernels.storage import Stored

__all__ = ["AfterLevel", "OnLattice", "TermSums", "Terms", "exact_terms"]

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]
States = NDArray[np.uint8]


class OnLattice(Protocol):
    """Sums of terms over some rows."""

    def merge(self, other: Any, /) -> None:
        """Add those over other rows, which are used up."""

    def number(self) -> Number:
        """Return them in their one form; the last column is the sum of all units."""


Binned = TypeVar("Binned", bound=OnLattice)


class Terms(Protocol[Binned]):
    """How a backend sums dgamma of a call at level 1 on the lattice."""

    def sums(self) -> Binned:
        """Return sums over no rows."""

    def add(self, dy: Stored, x: Stored, states: States | None, sums: Binned) -> None:
        """Add a block of rows with a result and finite dy; or those of it that are such."""

    def look(
        self,
        level: Any,
        dy: Stored,
        x: Stored,
        kept: Float64,
        dx: Stored,
        sums: tuple[Any, Binned],
        states: States,
    ) -> bool:
        """Do what the level's `look` does with the first of the sums, and add to the second."""


class AfterLevel:
    """Terms that are added when the level is done with a block."""

    add: Any

    def look(
        self,
        level: Any,
        dy: Stored,
        x: Stored,
        kept: Float64,
        dx: Stored,
        sums: tuple[Any, Any],
        states: States,
    ) -> bool:
        """Do what the level's `look` does with the first of the sums, and add to the second."""
        left: bool = level.look(dy, x, kept, dx, sums[0], states)
        self.add(dy, x, states if left else None, sums[1])
        return left


class TermSums:
    """The sums of terms, and beside the columns the units that were rounded to."""

    def __init__(self, size: int) -> None:
        self._digits = Digits(size + 1)

    def add(self, high: Float64, low: Float64, unit: int, rows: int) -> None:
        """Add the sums of terms over at most MOST_ROWS rows that have the same unit."""
        for part, exponent, counted in ((high, unit + HIGH, 0), (low, unit, rows)):
            self._digits.deposit(np.append(part.astype(np.int64), counted), exponent)

    def merge(self, other: "TermSums") -> None:
        """Add the sums over other rows."""
        self._digits.merge(other._digits)

    def add_rows(self, high: Float64, low: Float64, units: Integers) -> None:
        """Add the terms of at most MOST_ROWS rows."""
        for unit in np.unique(units[units != NO_TERMS]).tolist():
            rows = units == unit
            self.add(high[rows].sum(axis=0), low[rows].sum(axis=0), unit, int(rows.sum()))

    def number(self) -> Number:
        """Return the sums in their one form; the last column is the sum of all units."""
        return self._digits.number()


def exact_terms(
    dy: Float64, x: Float64, columns: NDArray[np.intp], unit: int, call: Call
) -> tuple[list[float], list[float]]:
    """Return some terms of a row in integers, rounded to nearest, ties to even: high and low."""
    row = ExactRow(x.tolist(), call.eps, is_centred=call.norm.centred)
    found = [
        _term(row, j, slope, unit)
        for j, slope in zip(columns.tolist(), dy[columns].tolist(), strict=True)
    ]
    low = [term & (2**HIGH - 1) for term in found]
    return [float(term >> HIGH) for term in found], [float(part) for part in low]


def _term(row: ExactRow, j: int, dy: float, unit: int) -> int:
    over, under = dy.as_integer_ratio()
    up, down = max(0, -unit), max(0, unit)
    return row.root.nearest(over * row.centred[j] << up, under * row.scale << down)
