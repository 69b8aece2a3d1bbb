"""Sums over rows, one for each column, that grow while backward sweeps.

Their parts are passed one by one: of some columns of all parts together, Numba would not know that
each lies in one piece, and would make no vectors.

dgamma is a pair with a bound; dbeta is a pair that is exact as long as `is_exact_sum` says so.
"""

from typing import Any

from truenorm.kernels.fused.compiled.elements.encoding import decode
from truenorm.kernels.fused.compiled.elements.vectors import prefer_wide_vectors
from truenorm.kernels.fused.compiled.pairs.arithmetic import two_sum
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import (
    DBETA_HIGH,
    DBETA_LOW,
    DGAMMA_BOUND,
    DGAMMA_HIGH,
    DGAMMA_LOW,
    SHARE,
    Array,
    Element,
    Numbers,
    U,
)

__all__ = [
    "add_to_dgamma",
    "add_to_pairs",
    "is_exact_group",
    "is_exact_sum",
    "merge_dbeta",
    "merge_dgamma",
]


@compiled
def add_to_dgamma(high: Numbers, low: Numbers, bound: Numbers, shares: Numbers) -> None:
    """Add a group's terms to the pairs, and to the bound theirs and that of the low part (E13)."""
    prefer_wide_vectors()
    for j in range(high.shape[0]):
        s = high[j] + shares[j]
        t = s - high[j]
        rest = low[j] + ((high[j] - (s - t)) + (shares[j] - t))
        high[j] = s
        low[j] = rest
        bound[j] += shares[j + SHARE] + U * abs(rest)


@kernel
def add_to_pairs(high: Numbers, low: Numbers, terms: Array) -> None:
    """Add numbers to pairs, such as those of dbeta."""
    prefer_wide_vectors()
    for j in range(high.shape[0]):
        term = decode(terms[j])
        s = high[j] + term
        t = s - high[j]
        low[j] += (high[j] - (s - t)) + (term - t)
        high[j] = s


@compiled
def _last_place(size: int, mantissa: int, bias: int) -> Any:
    """Return the exponent of the last place of a number, of which the magnitude is given."""
    return max(size >> mantissa, 1) - bias - mantissa


@compiled
def is_exact_group(smallest: Element, largest: Element, mantissa: int, bias: int) -> Any:
    """Return whether GROUP numbers of such magnitudes add up without error in float64.

    All are multiples of the last place of the smallest, `smallest` + 1, and the sum of eight is
    below 2**53 of those.
    """
    if largest == 0:
        return True
    top = _last_place(largest, mantissa, bias) + mantissa + 1
    return top + 3 <= _last_place(smallest + 1, mantissa, bias) + 53


@kernel
def is_exact_sum(smallest: int, largest: int, mantissa: int, bias: int, rows: int) -> Any:
    """Return whether the pairs of dbeta hold the sum over so many rows exactly.

    The high parts are exact by TwoSum. The low parts are sums of multiples of the last place of
    the smallest number, each at most u times the sum of all: exact if their sum is below 2**53
    of those places.
    """
    if largest == 0:
        return True
    bits = 0
    while rows >> bits > 0:
        bits += 1
    top = _last_place(largest, mantissa, bias) + mantissa + 1
    return top + 2 * bits - 53 <= _last_place(smallest + 1, mantissa, bias) + 53


@kernel
def merge_dgamma(sums: Numbers, others: Numbers) -> None:
    """Add dgamma over other rows."""
    for j in range(sums.shape[1]):
        s, e = two_sum(sums[DGAMMA_HIGH, j], others[DGAMMA_HIGH, j])
        rest = sums[DGAMMA_LOW, j] + others[DGAMMA_LOW, j] + e
        sums[DGAMMA_HIGH, j] = s
        sums[DGAMMA_LOW, j] = rest
        size = abs(rest) + abs(others[DGAMMA_LOW, j]) + abs(e)
        sums[DGAMMA_BOUND, j] += others[DGAMMA_BOUND, j] + 4 * U * size


@kernel
def merge_dbeta(sums: Numbers, others: Numbers) -> None:
    """Add dbeta over other rows."""
    for j in range(sums.shape[1]):
        s, e = two_sum(sums[DBETA_HIGH, j], others[DBETA_HIGH, j])
        sums[DBETA_HIGH, j] = s
        sums[DBETA_LOW, j] += others[DBETA_LOW, j] + e
