"""Level 2, forward: y of rows in double-double."""

import math
from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import as_bits, decode
from truenorm.kernels.fused.compiled.elements.filling import any_of, copy, fill
from truenorm.kernels.fused.compiled.narrow.forward import refused_y
from truenorm.kernels.fused.compiled.pairs.arithmetic import (
    add,
    add_float,
    multiply,
    multiply_float,
    two_sum,
)
from truenorm.kernels.fused.compiled.pairs.rounding import scaled_ends, write_rounded
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
    keep_row,
)
from truenorm.kernels.fused.compiled.rows.structure import accept_beta_at_mean
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import (
    BETA,
    DONE,
    GAMMA,
    REFUSED,
    SLACK,
    TINY,
    UNDEFINED,
    Centred,
    Coded,
    Flags,
    Numbers,
    Pair,
    States,
    W,
)

__all__ = ["forward", "settle_y"]


@kernel
def forward(
    x: Coded,
    columns: Numbers,
    constant: Coded,
    eps: float,
    centred: Centred,
    y: Coded,
    kept: Numbers,
    status: States,
    refused: Flags,
    scratch: Numbers,
) -> None:
    """Write y, what is kept and what became of each row, and which elements are refused."""
    rows, size = x.shape
    work, lanes, row = scratch[:WORK], scratch[WORK:SCRATCH], scratch[SCRATCH:][:size]
    for i in range(rows):
        fill(refused[i], True)
        if _has_no_result(x[i], eps, centred):
            fill(refused[i], False)
            fill(kept[i], np.nan)
            status[i] = UNDEFINED
            continue
        found = describe(x[i], eps, centred, row, lanes)
        keep_row(kept[i], found, centred)
        left = _write_row(x[i], row, found, columns, constant, centred, y[i], work, refused[i])
        status[i] = REFUSED if left > 0 else DONE


@compiled
def _has_no_result(x: Coded, eps: float, centred: Centred) -> Any:
    """Return whether a row is not finite, or constant (not centred: zero) while eps is 0."""
    first = decode(x[0])
    if centred is None:
        first = 0.0
    differs = eps > 0
    for j in range(x.shape[0]):
        value = decode(x[j])
        if not abs(value) < np.inf:
            return True
        differs |= value != first
    return not differs


@kernel
def settle_y(
    x: Coded,
    kept: Numbers,
    columns: Numbers,
    constant: Coded,
    eps: float,
    centred: Centred,
    y: Coded,
    refused: Flags,
    scratch: Numbers,
) -> None:
    """Settle rows that level 1 refused, and write which elements are refused once more."""
    size = x.shape[1]
    work, lanes, row = scratch[:WORK], scratch[WORK:SCRATCH], scratch[SCRATCH:][:size]
    for i in range(x.shape[0]):
        refused_y(x[i], kept[i], columns, eps, centred, y[i], refused[i])
        found = describe(x[i], eps, centred, row, lanes)
        _write_row(x[i], row, found, columns, constant, centred, y[i], work, refused[i])


@compiled
def _write_row(
    x: Coded,
    row: Numbers,
    found: PairRow,
    columns: Numbers,
    constant: Coded,
    centred: Centred,
    y: Coded,
    work: Numbers,
    refused: Flags,
) -> Any:
    """Write y of a row by structure and in pairs, and return how many elements are refused.

    Chunks in which no element was refused before stay as they are: most of a row.
    """
    gamma, beta = columns[GAMMA], columns[BETA]
    if found.constant:
        copy(y, constant)
        fill(refused, False)
        return 0
    low = (found.low_high, found.low_low)
    r = (found.r_high, found.r_low)
    left = 0
    for start in range(0, row.shape[0], CHUNK):
        stop = min(start + CHUNK, row.shape[0])
        if not any_of(refused[start:stop]):
            continue
        centre(row[start:stop], found.near, low, work)
        _results(
            gamma[start:stop],
            beta[start:stop],
            found.factor,
            r,
            SLACK * (found.of_r + 16 * W),
            SLACK * found.r_high * found.centring,
            work,
        )
        left += write_rounded(work, y[start:stop], refused[start:stop])
    if left == 0:
        return 0
    for j in range(row.shape[0]):
        if refused[j] and gamma[j] == 0:
            y[j] = constant[j]
            refused[j] = False
        elif refused[j] and _is_far(gamma[j] * found.factor, beta[j]):
            _write_scaled(row[j], found, gamma[j], beta[j], y[j : j + 1], refused[j : j + 1])
    return accept_beta_at_mean(x, centred, constant, y, refused)


@compiled
def _is_far(scale: float, beta: float) -> Any:
    """Return whether pairs need powers of two of their own to hold t or beta."""
    return (abs(scale) <= 2.0**-900) | (abs(scale) >= 2.0**900) | (abs(beta) >= 2.0**1000)


@compiled
def _results(
    gamma: Numbers,
    beta: Numbers,
    factor: float,
    r: Pair,
    relative: float,
    centring: float,
    work: Numbers,
) -> None:
    """Write z = gamma*c*r + beta and its bound (F5): none where numbers are too far out."""
    for j in range(gamma.shape[0]):
        scale = gamma[j] * factor
        t = multiply_float(multiply((work[j + C_HIGH], work[j + C_LOW]), r), scale)
        high, rest = add_float(t, beta[j])
        bound = relative * abs(t[0]) + centring * abs(scale) + 5 * W * abs(high) + TINY
        far = _is_far(scale, beta[j])
        work[j + Z_HIGH] = 0.0 if far else high
        work[j + Z_LOW] = 0.0 if far else rest
        work[j + ERROR] = np.inf if far else bound


@compiled
def _write_scaled(
    x: float, found: PairRow, gamma: float, beta: float, y: Coded, refused: Flags
) -> None:
    """Write y of one element, with powers of two kept apart."""
    c = add(two_sum(x, -found.near), (-found.low_high, -found.low_low))
    gamma_part, gamma_exponent = math.frexp(gamma)
    beta_part, beta_exponent = math.frexp(beta)
    t = multiply_float(multiply(c, (found.r_high, found.r_low)), gamma_part)
    t_exponent = found.exponent - found.w_exponent + gamma_exponent
    common = t_exponent + math.frexp(t[0])[1]
    if beta != 0:
        common = max(common, beta_exponent)
    shift = min(max(t_exponent - common, -2200), 2200)
    t = (np.ldexp(t[0], shift), np.ldexp(t[1], shift))
    shifted_beta = np.ldexp(beta_part, min(max(beta_exponent - common, -2200), 2200))
    high, low = add_float(t, shifted_beta)
    centring = np.ldexp(abs(gamma_part) * (found.r_high * found.centring), shift)
    bound = SLACK * (abs(t[0]) * (found.of_r + 16 * W) + centring + 5 * W * abs(high)) + TINY
    lower, upper = scaled_ends(high, low, bound, common, y[0])
    y[0] = lower
    refused[0] = as_bits(lower) != as_bits(upper)
