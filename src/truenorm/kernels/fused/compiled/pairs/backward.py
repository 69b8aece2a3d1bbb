"""Level 2, backward: dx of rows in double-double."""

import math
from typing import Any, NamedTuple

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import as_bits, decode, encode
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.pairs.arithmetic import (
    add,
    divide,
    divide_float,
    multiply,
    power_of_two,
    two_product,
    two_sum,
)
from truenorm.kernels.fused.compiled.pairs.rounding import scaled_ends, write_rounded
from truenorm.kernels.fused.compiled.pairs.rows import (
    C_HIGH,
    C_LOW,
    CHUNK,
    ERROR,
    G_HIGH,
    G_LOW,
    PAIR_BLOCK,
    PAIR_LANES,
    SCRATCH,
    WORK,
    Z_HIGH,
    Z_LOW,
    centre,
    describe,
    fold_pairs,
    pair_depth,
)
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import SLACK, TINY, W

__all__ = ["largest_exponent", "row_gradient", "settle_dx"]


class Slopes(NamedTuple):
    """What the elements of a row need of g = gamma*dy, scaled: its mean, q and rms."""

    a_high: float
    a_low: float
    a_error: float
    q_high: float
    q_low: float
    q_error: float
    rms: float


@compiled
def largest_exponent(values: Any) -> Any:
    """Return e with |v| < 2**e for all, as small as can be; 0 for zeros."""
    largest = 0.0
    for j in range(values.shape[0]):
        largest = max(largest, abs(decode(values[j])))
    return math.frexp(largest)[1] if largest > 0 else 0


@compiled
def settle_dx(
    dy: Any,
    x: Any,
    gamma: Any,
    gamma_exponent: Any,
    eps: Any,
    centred: Any,
    dx: Any,
    refused: Any,
    scratch: Any,
) -> None:
    """Write dx of some rows, and which elements are refused.

    `gamma` is scaled by a power of two: its largest element is about 1.
    """
    row, lanes = scratch[SCRATCH:][: x.shape[1]], scratch[WORK:SCRATCH]
    for i in range(x.shape[0]):
        found = describe(x[i], eps, centred, row, lanes)
        row_gradient(dy[i], found, gamma, gamma_exponent, centred, dx[i], refused[i], scratch)


@compiled
def row_gradient(
    dy: Any,
    found: Any,
    gamma: Any,
    gamma_exponent: Any,
    centred: Any,
    dx: Any,
    refused: Any,
    scratch: Any,
) -> Any:
    """Write dx of a row, and return how many elements are refused.

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
    sums = _sum_slopes(row, found, slopes, gamma, centred, lanes, work)
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
        centre(row[start:stop], found.near, (found.low_high, found.low_low), work)
        _centre_slopes(slopes[start:stop], gamma[start:stop], sums, work)
        _results(stop - start, found, sums, scale if near else 1.0, work)
        if near:
            left += write_rounded(work, dx[start:stop], refused[start:stop])
        else:
            left += _write_far(work, exponent, dx[start:stop], refused[start:stop])
    return left


@compiled
def _write_far(work: Any, exponent: Any, dx: Any, refused: Any) -> Any:
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
def _is_constant(slopes: Any, gamma: Any, centred: Any) -> Any:
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
def _is_zero(values: Any) -> Any:
    for j in range(values.shape[0]):
        if values[j] != 0:
            return False
    return True


@compiled
def _sum_slopes(
    row: Any, found: Any, slopes: Any, gamma: Any, centred: Any, lanes: Any, work: Any
) -> Any:
    """Return mean(g), or 0 if not centred, q = mean(g*c)/w with its bound, and rms(g)."""
    size = row.shape[0]
    low = (found.low_high, found.low_low)
    a, p = (0.0, 0.0), (0.0, 0.0)
    squares = 0.0
    for start in range(0, size, PAIR_BLOCK):
        fill(lanes, 0.0)
        end = min(start + PAIR_BLOCK, size)
        for left in range(start, end, CHUNK):
            right = min(left + CHUNK, end)
            centre(row[left:right], found.near, low, work)
            _products(slopes[left:right], gamma[left:right], work)
            for k in range(0, right - left, PAIR_LANES):
                squares += _add_products(k, min(PAIR_LANES, right - left - k), work, lanes)
        a = add(a, fold_pairs(lanes, 0))
        p = add(p, fold_pairs(lanes, 2 * PAIR_LANES))
    a, p = divide_float(a, float(size)), divide_float(p, float(size))
    if centred is None:
        a = (0.0, 0.0)
    rms = np.sqrt(squares / size) * SLACK
    q = divide(p, (found.w_high, found.w_low))
    q = (q[0] * found.ratio, q[1] * found.ratio)
    h = pair_depth(size)
    of_p = (h + 16) * W * rms * found.spread + rms * found.centring
    of_q = of_p * found.ratio / found.w_high + abs(q[0]) * (found.of_w + 15 * W)  # (F7)
    return Slopes(a[0], a[1], (h + 4) * W * rms, q[0], q[1], of_q, rms)  # (F6)


@compiled
def _products(slopes: Any, gamma: Any, work: Any) -> None:
    """Write g and g*c to the work space."""
    for j in range(slopes.shape[0]):
        g = two_product(slopes[j], gamma[j])
        product = multiply(g, (work[j + C_HIGH], work[j + C_LOW]))
        work[j + G_HIGH] = g[0]
        work[j + G_LOW] = g[1]
        work[j + Z_HIGH] = product[0]
        work[j + Z_LOW] = product[1]


@compiled
def _add_products(start: Any, count: Any, work: Any, lanes: Any) -> Any:
    """Add some g and g*c to the lanes, and return the sum of g*g."""
    part = work[start:]
    for k in range(count):
        s, e = two_sum(lanes[k], part[k + G_HIGH])
        lanes[k] = s
        lanes[k + PAIR_LANES] += e + part[k + G_LOW]
        s, e = two_sum(lanes[k + 2 * PAIR_LANES], part[k + Z_HIGH])
        lanes[k + 2 * PAIR_LANES] = s
        lanes[k + 3 * PAIR_LANES] += e + part[k + Z_LOW]
    squares = 0.0
    for k in range(count):
        squares += part[k + G_HIGH] * part[k + G_HIGH]
    return squares


@compiled
def _centre_slopes(slopes: Any, gamma: Any, sums: Any, work: Any) -> None:
    """Write g - mean(g) to the work space."""
    a = (-sums.a_high, -sums.a_low)
    for j in range(slopes.shape[0]):
        g = add(two_product(slopes[j], gamma[j]), a)
        work[j + G_HIGH] = g[0]
        work[j + G_LOW] = g[1]


@compiled
def _results(count: Any, found: Any, sums: Any, scale: Any, work: Any) -> None:
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
def _write_two(found: Any, slopes: Any, gamma: Any, exponent: Any, dx: Any, refused: Any) -> Any:
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
