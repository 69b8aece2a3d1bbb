"""Why a result is off, as far as one input tells: only if that is ordinary.

Where numbers are so large that squares overflow, zeros come of many mistakes, and nothing but
other inputs tells which it was. There, no cause is named.
"""

import numpy as np

from truenorm.verify.causes.holding import Came
from truenorm.verify.causes.naming import cause_of
from truenorm.verify.operation import Case
from truenorm.verify.own.norms import condition
from truenorm.verify.types import Array

__all__ = ["cause_in"]

SMALLEST, LARGEST = 2.0**-8, 2.0**10
"""Between these, the largest number of every row of x and of dy is ordinary."""
KAPPA = 16.0


def cause_in(case: Case, output: str, result: Array) -> str:
    """Return the hypothesis that fits a result in words; nothing if none does."""
    if not _is_ordinary(case):
        return ""
    came = [Came(case, output, result, right=False)]
    return cause_of(came, case.operation.hypotheses(output), partly=False).words


def _is_ordinary(case: Case) -> bool:
    """Tell whether no number is large, no row of x small, and none of them mostly mean."""
    for name, array in case.rows.items():
        largest = np.abs(array.astype(np.float64)).max(axis=1)
        least = SMALLEST if name == "x" else 0.0
        if not ((least <= largest) & (largest <= LARGEST)).all():
            return False
    return condition(case) <= KAPPA
