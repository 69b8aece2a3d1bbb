"""Constants of all backends: row status, error units, sizes of sums."""

OK, UNDECIDED, UNDEFINED, NOT_FINITE, CHANGED = range(5)
"""Row status. UNDECIDED: the rounding test failed for an element. UNDEFINED: the row has no
result. NOT_FINITE: dy has infinities or NaN. CHANGED: x differs from the x of the forward pass."""

TIER2_OFFSET = -(2.0**12)
"""Added to the exponent that tier 2 saves of a centred row. The sum is negative; the variance
that fast mode saves of other float64 rows is not."""

SUMS = 5
"""Numbers per column: dgamma as a pair and its bound, dbeta as a pair."""

U, W = 2.0**-53, 2.0**-106
"""Unit roundoff of float64, and the unit of the errors of pairs."""

SLACK = 1.01
"""Factor of every bound: covers products of errors and the rounding of the bound itself."""

TINY = 2.0**-1000
"""Bound on what is lost below the range of float64, generously."""

LOST_IN_Q = 2.0**-800
"""The same for q = mean(g*c)/w in tier 1, times a factor |c| that may be 2**-149 (R2)."""

TERM_BITS = 64
"""Bits of a fixed-point term of dgamma: its unit is 2**TERM_BITS below the largest possible
term of the row."""

LOWEST_UNIT = -320
"""No unit is below 2**LOWEST_UNIT: numbers of float32 and narrower types are above 2**-150."""

LOW_BITS = 24
"""A term in units is high*2**LOW_BITS + low: a float64 adds MAX_ROWS of each without error."""

MAX_ROWS = 2**12
"""Rows whose terms are added as float64 before the sums are converted to integers."""
