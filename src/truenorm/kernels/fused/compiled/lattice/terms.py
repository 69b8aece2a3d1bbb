"""The terms of rows in units, rounded to integers and added to bins."""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode
from truenorm.kernels.fused.compiled.elements.vectors import arrays_are_apart, prefer_wide_vectors
from truenorm.kernels.fused.compiled.lattice.row import (
    SPLIT,
    RowFactors,
    extent_of,
    reach_of,
    row_factors,
    unit_of,
)
from truenorm.kernels.fused.compiled.pairs.arithmetic import multiply_add, power_of_two, two_sum
from truenorm.kernels.fused.compiled.pairs.columns import write_terms
from truenorm.kernels.fused.compiled.pairs.rows import (
    CHUNK,
    ERROR,
    SCRATCH,
    WORK,
    Z_HIGH,
    Z_LOW,
    centre,
    describe,
)
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import (
    DONE,
    HIGH,
    MOST_ROWS,
    REFUSED,
    Centred,
    Coded,
    Integers,
    Numbers,
    States,
)

__all__ = ["ALL_DONE", "FOR_INTEGERS", "NO_BIN", "add_terms"]

SPLIT_HIGH = SPLIT * 2.0**HIGH

ALL_DONE, NO_BIN, FOR_INTEGERS = range(3)
"""Why `add_terms` returns: nothing is left, or a row has a unit for which there is no bin with
room, or a term of a row cannot be told from a tie."""


@kernel
def add_terms(
    dy: Coded,
    x: Coded,
    states: States,
    start: int,
    numbers: Numbers,
    centred: Centred,
    units: Integers,
    counts: Integers,
    bins: Numbers,
    scratch: Numbers,
) -> Any:
    """Add the terms of rows that have a result, from one on, to the bins of their units.

    `numbers` are eps and the exponents of `kernels.lattice.units`: of 1/sqrt(eps), sqrt(D).

    Returns why it stopped, at which row, and that row's unit.
    """
    eps, half_of_eps, half_of_size = numbers[0], int(numbers[1]), int(numbers[2])
    for i in range(start, x.shape[0]):
        if states[i] != DONE and states[i] != REFUSED:
            continue
        extent = extent_of(dy[i], x[i])
        reach = reach_of(extent, centred)
        if reach == 0:
            continue
        unit = unit_of(extent.dy, reach, half_of_eps, half_of_size)
        k = 0
        while k < units.shape[0] and units[k] != unit:
            k += 1
        if k == units.shape[0] or counts[k] == MOST_ROWS:
            return NO_BIN, i, unit
        high, low = bins[k, 0], bins[k, 1]
        found = row_factors(x[i], extent, unit, eps, centred, scratch[WORK:SCRATCH])
        if not _try_row(dy[i], x[i], found, centred, high, low) and not _add_pairs(
            dy[i], x[i], unit, eps, centred, high, low, scratch
        ):
            return FOR_INTEGERS, i, unit
        counts[k] += 1
    return ALL_DONE, x.shape[0], 0


@compiled
def _try_row(
    dy: Coded, x: Coded, found: RowFactors, centred: Centred, high: Numbers, low: Numbers
) -> Any:
    """Add the terms of a row if all are decided, which is returned."""
    if not found.bound < 2.0**-8:
        return False
    if _added(dy, x, found, 1.0, centred, high, low) <= 0.5 - found.bound:
        return True
    # Rounding is symmetric: what is added now is what was, with the other sign.
    _added(dy, x, found, -1.0, centred, high, low)
    return False


@compiled
def _added(
    dy: Coded,
    x: Coded,
    found: RowFactors,
    sign: float,
    centred: Centred,
    high: Numbers,
    low: Numbers,
) -> Any:
    """Add the terms of a row, or subtract them; return how far from an integer one is at most."""
    r_high, r_low = sign * found.r_high, sign * found.r_low
    if centred is None:
        return _add_row(dy, x, None, r_high, r_low, None, None, high, low)
    s_high, s_low = sign * found.s_high, sign * found.s_low
    if found.near == 0:
        return _add_row(dy, x, None, r_high, r_low, s_high, s_low, high, low)
    return _add_row(dy, x, found.near, r_high, r_low, s_high, s_low, high, low)


@compiled
def _add_row(
    dy: Coded,
    x: Coded,
    near: Any,
    r_high: float,
    r_low: float,
    s_high: Any,
    s_low: Any,
    high: Numbers,
    low: Numbers,
) -> Any:
    """Add dy*(x - near)*r + dy*s; None for near or s is zero.

    x - near has at most 25 bits, and so its product with dy is exact.
    """
    prefer_wide_vectors()
    arrays_are_apart()
    far = np.int64(0)
    for j in range(x.shape[0]):
        slope = decode(dy[j])
        d = decode(x[j]) if near is None else decode(x[j]) - near
        p = slope * d
        coarse = multiply_add(p, r_high, SPLIT_HIGH) - SPLIT_HIGH
        rest = multiply_add(p, r_low, multiply_add(p, r_high, -coarse))
        if s_high is not None:
            shift = multiply_add(slope, s_high, SPLIT_HIGH) - SPLIT_HIGH
            rest += multiply_add(slope, s_low, multiply_add(slope, s_high, -shift))
            coarse += shift
        fine = (rest + SPLIT) - SPLIT
        high[j] += coarse
        low[j] += fine
        # As integers, since a compiler may not reorder the maximum of numbers that may be NaN.
        far = max(far, np.float64(abs(rest - fine)).view(np.int64))
    return np.int64(far).view(np.float64)


@compiled
def _add_pairs(
    dy: Coded,
    x: Coded,
    unit: int,
    eps: float,
    centred: Centred,
    high: Numbers,
    low: Numbers,
    scratch: Numbers,
) -> Any:
    """Add the terms of a row in double-double if all are decided, which is returned."""
    size = x.shape[0]
    work, lanes = scratch[:WORK], scratch[WORK:SCRATCH]
    row, slopes = scratch[SCRATCH:][:size], scratch[SCRATCH + size :][:size]
    coarse, fine = scratch[SCRATCH + 2 * size :][:size], scratch[SCRATCH + 3 * size :][:size]
    found = describe(x, eps, centred, row, lanes)
    scale = power_of_two(-unit)
    for j in range(size):
        slopes[j] = decode(dy[j]) * scale
    for start in range(0, size, CHUNK):
        stop = min(start + CHUNK, size)
        centre(row[start:stop], found.near, (found.low_high, found.low_low), work)
        write_terms(slopes[start:stop], found, work)
        for j in range(stop - start):
            term = work[j + Z_HIGH]
            coarse[start + j] = (term + SPLIT_HIGH) - SPLIT_HIGH
            rest, error = two_sum(term - coarse[start + j], work[j + Z_LOW])
            fine[start + j] = (rest + SPLIT) - SPLIT
            left = abs((rest - fine[start + j]) + error)
            if not left <= 0.5 - (work[j + ERROR] + 2.0**-50):  # (L3)
                return False
    for j in range(size):
        high[j] += coarse[j]
        low[j] += fine[j]
    return True
