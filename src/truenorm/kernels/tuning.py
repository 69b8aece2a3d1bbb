"""What drivers and kernels of all backends share: row status, units of error, sizes of sums."""

OK, UNDECIDED, UNDEFINED, NOT_FINITE, CHANGED = range(5)
"""What became of a row: it is right; some element was undecided; it has no result; its dy is not
finite; its x is not what forward saw."""

BY_PAIRS = -(2.0**12)
"""Added to the power of two that level 2 keeps of a centred row: the sum is below zero, as the
variance that fast mode keeps of other float64 rows never is."""

SUMS = 5
"""Numbers of each column: dgamma as a pair and its bound, dbeta as a pair."""

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
