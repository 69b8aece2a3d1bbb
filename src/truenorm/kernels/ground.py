"""What drivers and kernels of all backends share: what became of a row, units of error, groups.

With the folder of compiled code, this is the file whose text decides what is compiled.
"""

__all__ = [
    "BETA",
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
    "NOT_FINITE",
    "REFUSED",
    "SHARES",
    "SLACK",
    "SUMS",
    "TINY",
    "UNDEFINED",
    "WEIGHT",
    "U",
    "W",
]

GROUP = 8
"""Rows that are taken at a time, so that parameters in the nearest cache serve all of them."""

COLUMNS = 512
"""Columns that are taken at a time."""

DONE, REFUSED, UNDEFINED, NOT_FINITE, CHANGED = range(5)
"""What became of a row: it is right; some element was refused; it has no result; its dy is not
finite; its x is not what forward saw."""

GAMMA, BETA, WEIGHT = range(3)
"""What forward needs of a column: its parameters, and their weight in the bound."""

DGAMMA_HIGH, DGAMMA_LOW, DGAMMA_BOUND, DBETA_HIGH, DBETA_LOW = range(5)
"""Where the sums of a column are: pairs, and the bound of the first."""

SUMS = 5
"""Numbers that are kept for each column."""

SHARES = 3
"""What a group adds to a column: to dgamma, to its bound, to dbeta; COLUMNS of each in a row."""

U, W = 2.0**-53, 2.0**-106
"""The unit roundoff of float64, and the unit in which errors of pairs are counted."""

SLACK = 1.01
"""On every bound: for products of errors, and for the rounding of the bound itself."""

TINY = 2.0**-1000
"""What may be lost below the range of float64, with much room."""
