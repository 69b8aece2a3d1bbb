"""The unit that the terms dy*xhat of a row are rounded to, decided by that row alone (L1).

It lies BELOW bits under the largest term that the row can have, which is found from exponents of
exact quantities: no sum is rounded for it, so that every backend finds the same.
"""

import math

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.ground import BELOW, LOWEST
from truenorm.kernels.norm import Norm

__all__ = ["NO_TERMS", "half_exponent_of_eps", "half_exponent_of_size", "units"]

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]

NO_TERMS = np.iinfo(np.int64).min
"""In place of the unit of a row whose terms are all zero."""

NO_LIMIT = 2**20
"""An exponent above all others."""


def half_exponent_of_size(size: int) -> int:
    """Return the smallest h with sqrt(size) <= 2**h: |xhat| is at most that."""
    return ((size - 1).bit_length() + 1) // 2


def half_exponent_of_eps(eps: float) -> int:
    """Return an h with 1/sqrt(eps) <= 2**h: r is at most that."""
    return -((math.frexp(eps)[1] - 1) // 2) if eps > 0 else NO_LIMIT


def units(dy: Float64, x: Float64, eps: float, norm: Norm) -> Integers:
    """Return e for each row of finite numbers: its terms are rounded to multiples of 2**e.

    |dy| < 2**a, |c| <= 2**b and (L1): |dy*xhat| < 2**(a + min(b + h_eps, h_size)).
    """
    largest = np.abs(dy).max(axis=1)
    # The difference of two float32 numbers as a float64 is rounded, but in one way only.
    reach = x.max(axis=1) - x.min(axis=1) if norm.centred else np.abs(x).max(axis=1)
    of_xhat = np.minimum(
        np.frexp(reach)[1].astype(np.int64) + half_exponent_of_eps(eps),
        half_exponent_of_size(x.shape[1]),
    )
    found = np.maximum(np.frexp(largest)[1] + of_xhat - BELOW, LOWEST)
    return np.where((largest == 0) | (reach == 0), NO_TERMS, found)
