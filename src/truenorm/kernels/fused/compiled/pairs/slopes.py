"""Level 2, backward: what the elements of a row need of g = gamma*dy."""

from typing import Any, NamedTuple

import numpy as np

from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.pairs.arithmetic import (
    add,
    divide,
    divide_float,
    multiply,
    two_product,
    two_sum,
)
from truenorm.kernels.fused.compiled.pairs.moments import (
    PAIR_BLOCK,
    PAIR_LANES,
    fold_pairs,
    pair_depth,
)
from truenorm.kernels.fused.compiled.pairs.rows import (
    C_HIGH,
    C_LOW,
    CHUNK,
    G_HIGH,
    G_LOW,
    Z_HIGH,
    Z_LOW,
    PairRow,
    centre,
)
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import SLACK, Centred, Numbers, W

__all__ = ["Slopes", "sum_slopes"]


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
def sum_slopes(
    row: Numbers,
    found: PairRow,
    slopes: Numbers,
    gamma: Numbers,
    centred: Centred,
    lanes: Numbers,
    work: Numbers,
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
def _products(slopes: Numbers, gamma: Numbers, work: Numbers) -> None:
    """Write g and g*c to the work space."""
    for j in range(slopes.shape[0]):
        g = two_product(slopes[j], gamma[j])
        product = multiply(g, (work[j + C_HIGH], work[j + C_LOW]))
        work[j + G_HIGH] = g[0]
        work[j + G_LOW] = g[1]
        work[j + Z_HIGH] = product[0]
        work[j + Z_LOW] = product[1]


@compiled
def _add_products(start: int, count: int, work: Numbers, lanes: Numbers) -> Any:
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
