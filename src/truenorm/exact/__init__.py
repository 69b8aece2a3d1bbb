"""Layer normalization in exact integers: the last word on every rounding.

Everything about a row is rational except r = 1/sqrt(w), a square root of a rational (D4). So
each result is an integer expression in one such root, or, for dgamma, in one for each row, and
can be rounded correctly: ties and exact zeros are decided, and everything else is bracketed
until one rounding remains. No floating-point arithmetic is done on values, and there is no limit
on the number of bits.
"""

from truenorm.exact.columns import Term, round_sum_of_roots
from truenorm.exact.formats import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, FloatFormat
from truenorm.exact.integers import scaled_integers
from truenorm.exact.rounding import round_ratio
from truenorm.exact.row import ExactRow, RowGradient, centred_signs

__all__ = [
    "BFLOAT16",
    "FLOAT16",
    "FLOAT32",
    "FLOAT64",
    "ExactRow",
    "FloatFormat",
    "RowGradient",
    "Term",
    "centred_signs",
    "round_ratio",
    "round_sum_of_roots",
    "scaled_integers",
]
