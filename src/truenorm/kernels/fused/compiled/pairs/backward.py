"""Level 2, backward: dx of rows in double-double."""

import math
from typing import Any

from truenorm.kernels.fused.compiled.elements.encoding import as_bits, decode, encode
from truenorm.kernels.fused.compiled.elements.filling import any_of, fill
from truenorm.kernels.fused.compiled.pairs.arithmetic import (
    add,
    divide,
    multiply,
    power_of_two,
    two_product,
)
from truenorm.kernels.fused.compiled.pairs.rounding import scaled_ends, write_rounded
from truenorm.kernels.fused.compiled.pairs.rows import (
    C_HIGH,
    C_LOW,
    CHUNK,
    ERROR,
    G_HIGH,
    G_LOW,
    SCRATCH,
    WORK,
    Z_HIGH,
    Z_LOW,
    PairRow,
    centre,
    describe,
)
from truenorm.kernels.fused.compiled.pairs.slopes import Slopes, sum_slopes
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import SLACK, TINY, Array, Centred, Coded, Flags, Numbers, W

__all__ = ["largest_exponent", "row_gradient", "settle_dx"]


@kernel
def largest_exponent(values: Array) -> Any:
    """Return e with |v| < 2**e for all, as small as can be; 0 for zeros."""
    largest = 0.0
    for j in range(values.shape[0]):
        largest = max(largest, abs(decode(values[j])))
    return math.frexp(largest)[1] if largest > 0 else 0


@kernel
def settle_dx(
    dy: Coded,
    x: Coded,
    gamma: Numbers,
    gamma_exponent: int,
    eps: float,
    centred: Centred,
    dx: Coded,
    refused: Flags,
    scratch: Numbers,
) -> None:
    """Write dx of some rows in chunks that have refused elements, and what is refused once more.

    `gamma` is scaled by a power of two: its largest element is about 1.
    """
    row, lanes = scratch[SCRATCH:][: x.shape[1]], scratch[WORK:SCRATCH]
    for i in range(x.shape[0]):
        found = describe(x[i], eps, centred, row, lanes)
        row_gradient(
            dy[i], x[i], found, gamma, gamma_exponent, centred, dx[i], refused[i], scratch
        )


@compiled
def row_gradient(
    dy: Coded,
    x: Coded,
    found: PairRow,
    gamma: Numbers,
    gamma_exponent: int,
    centred: Centred,
    dx: Coded,
    refused: Flags,
    scratch: Numbers,
) -> Any:
    """Write dx of a row in chunks that have refused elements; return how many still are.

    The scratch space holds the work space, lanes, the scaled row and, then, scaled dy.
    """
    size = dy.shape[0]
    work, lanes = scratch[:WORK], scratch[WORK:SCRATCH]
    row, slopes = scratch[SCRATCH:][:size], scratch[SCRATCH + size :][:size]
    exponent = largest_exponent(dy)
    first = power_of_two(-exponent // 2)
    second = power_of_two(-exponent - -exponent // 2)
    for j in range(size):
        slopes[j] = decode(dy[j]) * first * second
    exponent += gamma_exponent - found.w_exponent
    if _is_constant(slopes, gamma, centred):
        fill(dx, encode(0.0, dx[0]))
        fill(refused, False)
        return 0
    sums = sum_slopes(row, found, slopes, gamma, centred, lanes, work)
    if sums.rms < 2.0**-300:  # large gamma meets small dy everywhere: left to integers
        fill(refused, True)
        return size
    if centred is not None and size == 2:
        return _write_two(found, slopes, gamma, exponent, dx, refused)
    scale = power_of_two(exponent)
    near = 2.0**-400 < scale < 2.0**400
    left = 0
    for start in range(0, size, CHUNK):
        stop = min(start + CHUNK, size)
        if not any_of(refused[start:stop]):
            continue
        centre(row[start:stop], found.near, (found.low_high, found.low_low), work)
        _centre_slopes(slopes[start:stop], gamma[start:stop], sums, work)
        _results(stop - start, found, sums, scale if near else 1.0, work)
        if near:
            left += write_rounded(work, dx[start:stop], refused[start:stop])
        else:
            left += _write_far(work, exponent, dx[start:stop], refused[start:stop])
    if centred is None:
        return _accept_zeros(dy, x, dx, refused)
    return left


@compiled
def _accept_zeros(dy: Coded, x: Coded, dx: Coded, refused: Flags) -> Any:
    """Where dy and x are zero, so is dx of a row that is not centred; return what is refused."""
    left = 0
    for j in range(dx.shape[0]):
        if refused[j] and decode(dy[j]) == 0 and decode(x[j]) == 0:
            dx[j] = encode(0.0, dx[0])
            refused[j] = False
        left += refused[j]
    return left


@compiled
def _write_far(work: Numbers, exponent: int, dx: Coded, refused: Flags) -> Any:
    """Round the results of a chunk that need a power of two; return how many are refused."""
    left = 0
    for j in range(dx.shape[0]):
        bound = work[j + ERROR] + TINY
        lower, upper = scaled_ends(work[j + Z_HIGH], work[j + Z_LOW], bound, exponent, dx[0])
        dx[j] = lower
        refused[j] = as_bits(lower) != as_bits(upper)
        left += refused[j]
    return left


@compiled
def _is_constant(slopes: Numbers, gamma: Numbers, centred: Centred) -> Any:
    """Return whether g is the same all along a row: then dx is zero (D21).

    Where rows are not centred, whether it is zero.
    """
    first = two_product(slopes[0], gamma[0])
    if centred is None and first[0] != 0:
        return False
    for j in range(slopes.shape[0] - 1, 0, -1):
        g = two_product(slopes[j], gamma[j])
        if g[0] != first[0] or g[1] != first[1]:
            return False
    # A product that underflows has lost what would tell it from others.
    return abs(first[0]) > 2.0**-900 or _is_zero(slopes) or _is_zero(gamma)


@compiled
def _is_zero(values: Numbers) -> Any:
    for j in range(values.shape[0]):
        if values[j] != 0:
            return False
    return True


@compiled
def _centre_slopes(slopes: Numbers, gamma: Numbers, sums: Slopes, work: Numbers) -> None:
    """Write g - mean(g) to the work space."""
    a = (-sums.a_high, -sums.a_low)
    for j in range(slopes.shape[0]):
        g = add(two_product(slopes[j], gamma[j]), a)
        work[j + G_HIGH] = g[0]
        work[j + G_LOW] = g[1]


@compiled
def _results(count: int, found: PairRow, sums: Slopes, scale: float, work: Numbers) -> None:
    """Write dx, times a power of two, and its bound (F8)."""
    q, r = (sums.q_high, sums.q_low), (found.r_high, found.r_low)
    common = SLACK * r[0] * scale * (sums.a_error + abs(q[0]) * found.centring)
    of_g = SLACK * r[0] * scale * 3 * W
    of_c = SLACK * r[0] * scale * (sums.q_error + 10 * W * abs(q[0]))
    of_z = SLACK * (found.of_r + 12 * W)
    for j in range(count):
        g = (work[j + G_HIGH], work[j + G_LOW])
        c = (work[j + C_HIGH], work[j + C_LOW])
        along = multiply(c, q)
        z = multiply(add(g, (-along[0], -along[1])), r)
        work[j + Z_HIGH] = z[0] * scale
        work[j + Z_LOW] = z[1] * scale
        work[j + ERROR] = common + of_g * abs(g[0]) + of_c * abs(c[0]) + of_z * abs(z[0] * scale)


@compiled
def _write_two(
    found: PairRow, slopes: Numbers, gamma: Numbers, exponent: int, dx: Coded, refused: Flags
) -> Any:
    """Write dx of a row of two elements (D24), with its bound (F9).

    Returns how many are refused.
    """
    g0, g1 = two_product(slopes[0], gamma[0]), two_product(slopes[1], gamma[1])
    difference = add(g0, (-g1[0], -g1[1]))
    left = divide((found.scaled_eps / 2, 0.0), (found.w_high, found.w_low))
    z = multiply(multiply(difference, left), (found.r_high, found.r_low))
    bound = SLACK * abs(z[0]) * (found.of_r + found.of_w + 40 * W) + TINY
    count = 0
    for j in range(2):
        sign = 1.0 if j == 0 else -1.0
        lower, upper = scaled_ends(sign * z[0], sign * z[1], bound, exponent, dx[0])
        dx[j] = lower
        refused[j] = as_bits(lower) != as_bits(upper)
        count += refused[j]
    return count
