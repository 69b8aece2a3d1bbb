"""The sums over rows of correct mode, rounded; what is refused is summed again, better."""

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels import integers
from truenorm.kernels.fused.blocks import blocks_within, held, in_ranges, row_ranges
from truenorm.kernels.fused.compiled.columns.column_sums import merge
from truenorm.kernels.fused.compiled.columns.exact_columns import (
    BITS,
    LOWEST,
    add_digits,
    as_pairs,
)
from truenorm.kernels.fused.compiled.ground import (
    DBETA_HIGH,
    DBETA_LOW,
    DGAMMA_BOUND,
    DGAMMA_HIGH,
    DGAMMA_LOW,
    SUMS,
)
from truenorm.kernels.fused.compiled.pairs import columns as pair_columns
from truenorm.kernels.fused.scratch import aligned, scratch_of_pairs
from truenorm.kernels.fused.sweep import Sweep, Totals
from truenorm.kernels.rounding import canonical_nan
from truenorm.kernels.rows import Rows
from truenorm.kernels.storage import widen

__all__ = ["round_dbeta", "round_dgamma"]

Float64 = NDArray[np.float64]
Flags = NDArray[np.bool_]

DIGITS = 2**17
"""Digits that a thread holds: 1 MB."""


def round_dgamma(
    totals: Totals, given: Sweep, dy: Rows, x: Rows, target: FloatFormat | None
) -> Float64 | None:
    """Round dgamma; for columns that are refused, sweep again at the next levels."""
    if target is None:
        return None
    if totals.undefined:
        return np.full(given.size, np.nan)
    dgamma, refused = _rounded(totals.sums, given.dy_exponent, target)
    if totals.dgamma_special is not None:
        refused &= totals.dgamma_special.none
    left = np.flatnonzero(refused)
    if len(left) and not given.wide:
        dgamma[left], refused = _rounded(_sum_in_pairs(given, left), given.dy_exponent, target)
        left = left[refused]
    if len(left):
        dgamma[left] = integers.column_sums(dy, x, left, given.eps, target)
    if totals.dgamma_special is not None:
        totals.dgamma_special.apply(dgamma)
    return dgamma


def round_dbeta(totals: Totals, given: Sweep, target: FloatFormat | None) -> Float64 | None:
    """Round dbeta, which is exact, to the type of beta, after dgamma; None if there is no beta."""
    if target is None:
        return None
    smallest, largest = totals.extent.tolist()
    if not given.wide and is_exact_sum(smallest, largest, given.target, given.count):
        exponents = np.zeros(given.size, np.int64)
        high, low = totals.sums[DBETA_HIGH], totals.sums[DBETA_LOW]
    else:
        high, low, exponents = _sum_in_integers(given)
    bound = totals.sums[DGAMMA_BOUND]  # dgamma is done with it
    bound[...] = 0
    dbeta, _ = _round(high, low, bound, exponents, target)
    if totals.dbeta_special is not None:
        totals.dbeta_special.apply(dbeta)
    return dbeta


def _rounded(sums: Float64, exponent: int, target: FloatFormat) -> tuple[Float64, Flags]:
    """Round dgamma where its bound allows it; return also which columns are refused."""
    exponents = np.full(sums.shape[1], exponent)
    return _round(sums[DGAMMA_HIGH], sums[DGAMMA_LOW], sums[DGAMMA_BOUND], exponents, target)


def _round(
    high: Float64, low: Float64, bound: Float64, exponents: NDArray[np.int64], target: FloatFormat
) -> tuple[Float64, Flags]:
    stored = np.empty(len(high), canonical_nan(target).dtype)
    refused = np.empty(len(high), np.bool_)
    pair_columns.round_columns(high, low, bound, exponents, held(stored, target), refused)
    return widen(stored, target), refused


def _sum_in_pairs(given: Sweep, columns: NDArray[np.intp]) -> Float64:
    """Sum some columns of dgamma in double-double."""
    ranges = row_ranges(given.count, given.size, given.threads)
    shares = [np.zeros((SUMS, len(columns))) for _ in ranges]

    def work(index: int) -> None:
        for start, stop in blocks_within(*ranges[index], given.size):
            dy, x = given.dy.block(start, stop), given.x.block(start, stop)
            pair_columns.sum_columns(
                dy,
                x,
                columns,
                given.dy_exponent,
                given.eps,
                shares[index],
                np.empty((2, len(columns))),
                aligned(scratch_of_pairs(given.size)),
            )

    in_ranges(work, ranges, given.threads)
    for share in shares[1:]:
        merge(shares[0], share)
    return shares[0]


def _sum_in_integers(given: Sweep) -> tuple[Float64, Float64, NDArray[np.int64]]:
    """Sum dy exactly, and return the sums as pairs and powers of two."""
    first, end = places_of(narrow=not given.wide)
    high, low = np.empty(given.size), np.empty(given.size)
    exponents = np.empty(given.size, np.int64)
    step = max(1, DIGITS // (end - first))
    for left in range(0, given.size, step):
        some = slice(left, left + step)
        digits = _digits(given, left, len(high[some]), first, end - first)
        as_pairs(first, digits, high[some], low[some], exponents[some])
    return high, low, exponents


def _digits(given: Sweep, left: int, columns: int, first: int, places: int) -> NDArray[np.int64]:
    """Return the digits of the sums of some columns, as many threads find them."""
    ranges = row_ranges(given.count, given.size, given.threads)
    shares = np.zeros((len(ranges), places, columns), np.int64)

    def work(index: int) -> None:
        for start, stop in blocks_within(*ranges[index], given.size):
            add_digits(given.dy.block(start, stop), left, first, shares[index])

    in_ranges(work, ranges, given.threads)
    total: NDArray[np.int64] = shares.sum(axis=0)
    return total


def is_exact_sum(smallest: int, largest: int, target: FloatFormat, rows: int) -> bool:
    """Return whether the pairs of dbeta hold the sum over so many rows exactly.

    The high parts are exact by TwoSum. The low parts are sums of multiples of the last place of
    the smallest number, each at most u times the sum of all: exact if their sum is below 2**53
    of those places.
    """
    if largest == 0:
        return True
    mantissa = target.precision - 1
    lowest = target.quantum - 1  # the exponent field is 1 where the last place is the quantum
    top = max(largest >> mantissa, 1) + lowest + target.precision
    place = max((smallest + 1) >> mantissa, 1) + lowest
    return top + 2 * rows.bit_length() - 53 <= place + 53


def places_of(*, narrow: bool) -> tuple[int, int]:
    """Return the first place that numbers of a type can have, and the one after the last.

    As float64 numbers, those of float32 and below have their last bit at 2**-201 or above.
    """
    lowest, highest = (-201, 128) if narrow else (LOWEST, 1024)
    return (lowest - LOWEST) // BITS, (highest - LOWEST) // BITS + 2
