"""Level 2: dgamma in double-double, and the rounding of sums over rows."""

import math
from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import as_bits, decode, encode
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.pairs.arithmetic import (
    multiply,
    multiply_float,
    power_of_two,
    two_sum,
)
from truenorm.kernels.fused.compiled.pairs.backward import row_gradient
from truenorm.kernels.fused.compiled.pairs.rounding import ends, scaled_ends
from truenorm.kernels.fused.compiled.pairs.rows import (
    C_HIGH,
    C_LOW,
    CHUNK,
    ERROR,
    SCRATCH,
    WORK,
    Z_HIGH,
    Z_LOW,
    PairRow,
    centre,
    describe,
    root_mean_square,
)
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import (
    BY_PAIRS,
    CHANGED,
    DGAMMA_BOUND,
    DGAMMA_HIGH,
    DGAMMA_LOW,
    DONE,
    NOT_FINITE,
    REFUSED,
    SLACK,
    TINY,
    UNDEFINED,
    Centred,
    Coded,
    Columns,
    Flags,
    Integers,
    Numbers,
    States,
    U,
    W,
)

__all__ = ["backward", "largest_exponent_of_rows", "round_columns", "sum_columns", "write_terms"]


@kernel
def backward(
    dy: Coded,
    x: Coded,
    kept: Numbers,
    gamma: Numbers,
    numbers: Numbers,
    centred: Centred,
    dx: Coded,
    sums: Numbers,
    status: States,
    scratch: Numbers,
) -> None:
    """Write dx and what became of each row, and add to dgamma.

    Rows whose dy is not finite are left alone. `numbers` are eps and the powers of two by which
    gamma is scaled already and dy is to be scaled for the sums.
    """
    rows, size = x.shape
    work, lanes = scratch[:WORK], scratch[WORK:SCRATCH]
    row, slopes = scratch[SCRATCH:][:size], scratch[SCRATCH + size :][:size]
    refused = scratch[SCRATCH + 2 * size :].view(np.bool_)[:size]
    eps, gamma_exponent, dy_exponent = numbers[0], int(numbers[1]), int(numbers[2])
    for i in range(rows):
        status[i] = DONE
        if not _is_finite(dy[i]):
            status[i] = NOT_FINITE
            continue
        if kept[i, 0] != kept[i, 0]:
            status[i] = UNDEFINED
            continue
        found = describe(x[i], eps, centred, row, lanes)
        if _has_changed(kept[i], found, centred):
            status[i] = CHANGED
            continue
        fill(refused, True)
        if row_gradient(
            dy[i], x[i], found, gamma, gamma_exponent, centred, dx[i], refused, scratch
        ):
            status[i] = REFUSED
        _scaled(dy[i], dy_exponent, slopes)
        _add_terms(row, found, slopes, work, sums)


@compiled
def _is_finite(values: Coded) -> Any:
    for j in range(values.shape[0]):
        if not abs(decode(values[j])) < np.inf:
            return False
    return True


@kernel
def largest_exponent_of_rows(dy: Coded) -> Any:
    """Return e with |dy| < 2**e for all that are finite, as small as can be."""
    largest = 0.0
    for i in range(dy.shape[0]):
        for j in range(dy.shape[1]):
            size = abs(decode(dy[i, j]))
            if size < np.inf:
                largest = max(largest, size)
    return math.frexp(largest)[1] if largest > 0 else 0


@compiled
def _has_changed(kept: Numbers, found: PairRow, centred: Centred) -> Any:
    """Return whether a row has another mean than was kept, beyond what rounding does.

    If it is not centred, another root mean square.
    """
    if centred is None:
        root = root_mean_square(found)
        return not abs(root + kept[0]) <= 2.0**-46 * root + 1e-323
    difference = abs((found.near - kept[0]) + (found.low_high - kept[1]))
    return kept[2] != found.exponent + BY_PAIRS or not difference <= 2.0**-90


@compiled
def _scaled(dy: Coded, exponent: int, slopes: Numbers) -> None:
    """Scale a row of dy; what is too small for that stays there as the smallest number."""
    first = power_of_two(-exponent // 2)
    second = power_of_two(-exponent - -exponent // 2)
    for j in range(dy.shape[0]):
        slopes[j] = decode(dy[j]) * first * second
        if slopes[j] == 0 and decode(dy[j]) != 0:
            slopes[j] = math.copysign(5e-324, decode(dy[j]))


@kernel
def sum_columns(
    dy: Coded,
    x: Coded,
    columns: Columns,
    dy_exponent: int,
    eps: float,
    centred: Centred,
    sums: Numbers,
    chosen: Numbers,
    scratch: Numbers,
) -> None:
    """Add the terms of some columns of dgamma, in which every dy is finite.

    `chosen` has room for x and dy of those columns.
    """
    rows, size = x.shape
    work, lanes = scratch[:WORK], scratch[WORK:SCRATCH]
    row, slopes = scratch[SCRATCH:][:size], scratch[SCRATCH + size :][:size]
    for i in range(rows):
        found = describe(x[i], eps, centred, row, lanes)
        _scaled(dy[i], dy_exponent, slopes)
        for k in range(columns.shape[0]):
            chosen[0, k] = row[columns[k]]
            chosen[1, k] = slopes[columns[k]]
        _add_terms(chosen[0], found, chosen[1], work, sums)


@compiled
def _add_terms(
    row: Numbers, found: PairRow, slopes: Numbers, work: Numbers, sums: Numbers
) -> None:
    """Add dy*xhat to the pairs of dgamma, and its error to the bound (F10)."""
    if found.constant:
        return
    for start in range(0, row.shape[0], CHUNK):
        stop = min(start + CHUNK, row.shape[0])
        centre(row[start:stop], found.near, (found.low_high, found.low_low), work)
        write_terms(slopes[start:stop], found, work)
        _add_chunk(
            work,
            sums[DGAMMA_HIGH, start:stop],
            sums[DGAMMA_LOW, start:stop],
            sums[DGAMMA_BOUND, start:stop],
        )


@compiled
def write_terms(slopes: Numbers, found: PairRow, work: Numbers) -> None:
    """Write dy*xhat and its bound."""
    r = (found.r_high, found.r_low)
    relative = SLACK * (found.of_r + 16 * W)
    centring = SLACK * found.r_high * found.centring
    factor = found.factor
    for j in range(slopes.shape[0]):
        scale = slopes[j] * factor
        t = multiply_float(multiply((work[j + C_HIGH], work[j + C_LOW]), r), scale)
        lost = TINY if slopes[j] != 0 else 0.0
        work[j + Z_HIGH] = t[0]
        work[j + Z_LOW] = t[1]
        work[j + ERROR] = relative * abs(t[0]) + centring * abs(scale) + U * abs(t[1]) + lost


@compiled
def _add_chunk(work: Numbers, high: Numbers, low: Numbers, bound: Numbers) -> None:
    """Add the terms of a row to the pairs, and to the bound what the low part loses."""
    for j in range(high.shape[0]):
        s, e = two_sum(high[j], work[j + Z_HIGH])
        rest = low[j] + (e + work[j + Z_LOW])
        high[j] = s
        low[j] = rest
        bound[j] += work[j + ERROR] + U * (2 * abs(rest) + abs(e))


@kernel
def round_columns(
    high: Numbers, low: Numbers, bound: Numbers, exponents: Integers, out: Coded, refused: Flags
) -> Any:
    """Round sums of columns where the bound allows it; return how many are refused, and which."""
    like = out[0]
    for j in range(out.shape[0]):  # nearly all, in vectors: the sum as one float64 (E13)
        s = high[j] + low[j]
        error = SLACK * bound[j] + U * abs(s)
        out[j] = encode(s - error, like)
        differs = as_bits(out[j]) != as_bits(encode(s + error, like))
        refused[j] = differs | (exponents[j] != 0)
    left = 0
    for j in range(out.shape[0]):
        if not refused[j]:
            continue
        s, e = two_sum(high[j], low[j])
        error = SLACK * bound[j]
        if exponents[j] == 0 and 2.0**-900 < abs(s) < 2.0**900:
            lower, upper = ends(s, e, error, like)
        else:
            lower, upper = scaled_ends(s, e, error, exponents[j], like)
        out[j] = lower
        refused[j] = as_bits(lower) != as_bits(upper)
        left += refused[j]
    return left
