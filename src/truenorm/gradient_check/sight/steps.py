"""How far to move: the spread of an input, and steps that its numbers can take exactly."""

import math

import numpy as np

from truenorm.gradient_check.problem import Array

__all__ = ["CLOSE", "MOST_WEIGHT_BITS", "VAGUE", "least_step", "spread_of", "weight_bits"]

CLOSE = 2.0**-10
"""So far apart, beside the spread, are points between which most functions are smooth."""
VAGUE = 2.0**-10
"""Noise above this, beside a function, may be its curvature."""
LEAST_WEIGHT_BITS, MOST_WEIGHT_BITS = 3, 30


def spread_of(values: Array) -> float:
    """Return the distance over which a function of these data may be expected to change.

    That is their spread, not their size: at x = 1e8 with a spread of 1e-3, a step scaled by |x|
    would leave the function.
    """
    largest = float(np.abs(values).max())
    if not largest:
        return 1.0
    unit = 2.0 ** math.floor(math.log2(largest))
    relative = values.astype(np.float64) / unit  # sums would overflow
    return float(np.abs(relative - relative.mean()).mean()) * unit or largest


def least_step(values: Array) -> float:
    """Return a power of two that every element can move by without being rounded."""
    return float(np.spacing(np.abs(values).max() or values.dtype.type(1)))


def weight_bits(values: Array, finest: float) -> int:
    """Return how many bits weights may have where steps of a share of the spread are to be exact.

    Steps times weights are what elements move by: the finer the weights, the larger the steps
    that are exact.
    """
    room = math.log2(spread_of(values)) + math.log2(finest) - math.log2(least_step(values))
    return min(max(math.floor(room), LEAST_WEIGHT_BITS), MOST_WEIGHT_BITS)
