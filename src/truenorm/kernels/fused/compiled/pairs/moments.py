"""Level 2: sums along a row in double-double, in lanes that a compiler can take at once."""

from typing import Any

from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.pairs.arithmetic import add, divide_float, multiply, two_sum
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Numbers

__all__ = ["PAIR_BLOCK", "PAIR_LANES", "fold_pairs", "middle", "moments", "pair_depth"]

PAIR_LANES = 128
PAIR_BLOCK = 64 * PAIR_LANES
"""Elements that are added in lanes; blocks of them are added as pairs."""


@compiled
def pair_depth(size: int) -> Any:
    """Return H of (F1): the error of a sum along a row is at most H*W*sum|terms|."""
    in_lanes = min(size, PAIR_BLOCK) // PAIR_LANES + 8
    return 2.0 * (in_lanes + 1) ** 2 + 3 * (size // PAIR_BLOCK + 1)


@compiled
def middle(row: Numbers, lanes: Numbers) -> Any:
    """Return a float64 near the mean."""
    sums = lanes[:PAIR_LANES]
    fill(sums, 0.0)
    for k in range(0, row.shape[0], PAIR_LANES):
        part = row[k : k + PAIR_LANES]
        for j in range(part.shape[0]):
            sums[j] += part[j]
    total = 0.0
    for j in range(PAIR_LANES):
        total += sums[j]
    return total / row.shape[0]


@compiled
def moments(row: Numbers, near: float, lanes: Numbers) -> Any:
    """Return the means of d = x - near and of its square."""
    size = row.shape[0]
    first, second = (0.0, 0.0), (0.0, 0.0)
    for start in range(0, size, PAIR_BLOCK):
        block = row[start : start + PAIR_BLOCK]
        fill(lanes, 0.0)
        for k in range(0, block.shape[0], PAIR_LANES):
            _add_moments(block[k : k + PAIR_LANES], near, lanes)
        first = add(first, fold_pairs(lanes, 0))
        second = add(second, fold_pairs(lanes, 2 * PAIR_LANES))
    return divide_float(first, float(size)), divide_float(second, float(size))


@compiled
def _add_moments(x: Numbers, near: float, lanes: Numbers) -> None:
    """Add d and its square to the lanes: high and low parts of the one, then of the other."""
    for k in range(x.shape[0]):
        d, e = two_sum(x[k], -near)
        s, f = two_sum(lanes[k], d)
        lanes[k] = s
        lanes[k + PAIR_LANES] += f + e
        square, g = multiply((d, e), (d, e))
        s, f = two_sum(lanes[k + 2 * PAIR_LANES], square)
        lanes[k + 2 * PAIR_LANES] = s
        lanes[k + 3 * PAIR_LANES] += f + g


@compiled
def fold_pairs(lanes: Numbers, start: int) -> Any:
    """Return the sum of the lanes that begin at `start`: high parts, then low parts."""
    high = lanes[start : start + PAIR_LANES]
    low = lanes[start + PAIR_LANES : start + 2 * PAIR_LANES]
    half = PAIR_LANES // 2
    while half > 0:
        for k in range(half):
            s, e = two_sum(high[k], high[k + half])
            high[k] = s
            low[k] += low[k + half] + e
        half //= 2
    return two_sum(high[0], low[0])
