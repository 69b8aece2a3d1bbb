"""What drivers and kernels of all backends share: what became of a row, units of error, groups.

With the folder of compiled code, this is the file whose text decides what is compiled.
"""

from typing import Any

__all__ = [
    "BELOW",
    "BETA",
    "BY_PAIRS",
    "CHANGED",
    "COLUMNS",
    "DBETA_HIGH",
    "DBETA_LOW",
    "DGAMMA_BOUND",
    "DGAMMA_HIGH",
    "DGAMMA_LOW",
    "DONE",
    "GAMMA",
    "GROUP",
    "HIGH",
    "LOST_IN_Q",
    "LOWEST",
    "MOST_ROWS",
    "NOT_FINITE",
    "REFUSED",
    "SHARE",
    "SHARES",
    "SLACK",
    "SUMS",
    "TINY",
    "UNDEFINED",
    "WEIGHT",
    "Array",
    "Centred",
    "Coded",
    "Columns",
    "Element",
    "Flags",
    "Integers",
    "Numbers",
    "Pair",
    "Singles",
    "States",
    "U",
    "W",
]

Element = Any
"""A number of one of the four types, coded: see `Coded`."""

Coded = Any
"""Elements as compiled kernels take them: float16 as int16, bfloat16 as uint16, by their bits."""

Numbers = Any
"""An array of float64 numbers; `Singles` of float32."""

Singles = Any
Integers = Any
"""An array of int64 numbers."""

Columns = Any
"""An array of indices of columns."""

Array = Any
"""An array of any of these."""

Flags = Any
"""An array of bool, one for each element: whether it is refused."""

States = Any
"""An array of uint8, one for each row: what became of it."""

Pair = Any
"""Two float64 numbers that stand for their sum."""

Centred = Any
"""True or None: whether rows are centred. A branch on it is decided when a kernel is compiled."""

GROUP = 8
"""Rows that are taken at a time, so that parameters in the nearest cache serve all of them."""

COLUMNS = 512
"""Columns that are taken at a time."""

DONE, REFUSED, UNDEFINED, NOT_FINITE, CHANGED = range(5)
"""What became of a row: it is right; some element was refused; it has no result; its dy is not
finite; its x is not what forward saw."""

BY_PAIRS = -(2.0**12)
"""Added to the power of two that level 2 keeps of a centred row: the sum is below zero, as the
variance that fast mode keeps of other float64 rows never is."""

GAMMA, BETA, WEIGHT = range(3)
"""What forward needs of a column: its parameters, and their weight in the bound."""

DGAMMA_HIGH, DGAMMA_LOW, DGAMMA_BOUND, DBETA_HIGH, DBETA_LOW = range(5)
"""Where the sums of a column are: pairs, and the bound of the first."""

SUMS = 5
"""Numbers that are kept for each column."""

SHARE = COLUMNS + 16
"""How far apart the shares of a group are. Were it a page, each load would look to the processor
like one of what was just stored: their addresses would agree in the last twelve bits."""

SHARES = 3 * SHARE
"""What a group adds to some columns: to dgamma, to its bound, to dbeta."""

U, W = 2.0**-53, 2.0**-106
"""The unit roundoff of float64, and the unit in which errors of pairs are counted."""

SLACK = 1.01
"""On every bound: for products of errors, and for the rounding of the bound itself."""

TINY = 2.0**-1000
"""What may be lost below the range of float64, with much room."""

LOST_IN_Q = 2.0**-800
"""The same of q = mean(g*c)/w at level 1, where a factor |c| of 2**-149 does not lose it (R2)."""

BELOW = 64
"""Bits of a term of dgamma on the lattice: its unit is so far below the largest that its row can
have."""

LOWEST = -320
"""No unit is below 2**LOWEST: what float32 and smaller types can tell begins at 2**-150."""

HIGH = 24
"""A term in units is high*2**HIGH + low, of which a float64 adds up MOST_ROWS without error."""

MOST_ROWS = 2**12
"""Rows whose terms a bin holds before it is cleared."""
