"""Levels 0 and 1, backward: rows whose dx is known by structure, and rows of two elements."""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import as_bits, decode, encode
from truenorm.kernels.fused.compiled.rows.statistics import error_of_r, error_of_w
from truenorm.kernels.fused.compiled.rows.sums import depth_of_sum
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import SLACK, Centred, Coded, Numbers, U

__all__ = ["is_constant", "write_two"]


@compiled
def write_two(dy: Coded, gamma: Coded, kept: Numbers, eps: float, dx: Coded) -> Any:
    """Write dx of a row of two elements (D24), and return whether one was refused."""
    low, v = kept[1], kept[2]
    w = v + eps
    of_w = error_of_w(low, v, w, depth_of_sum(2))
    difference = decode(dy[0]) * decode(gamma[0]) - decode(dy[1]) * decode(gamma[1])
    half = difference * ((eps / w) / np.sqrt(w) / 2)
    bound = SLACK * abs(half) * (error_of_r(of_w) + of_w + 8 * U) + 2.0**-1000  # (E11)
    like = dx[0]
    refused = False
    for j in range(2):
        z = half if j == 0 else -half
        dx[j] = encode(z + 0.0, like)
        refused |= as_bits(encode(z - bound, like)) != as_bits(encode(z + bound, like))
    return refused


@compiled
def is_constant(dy: Coded, gamma: Coded, centred: Centred) -> Any:
    """Return whether g is the same all along a row: then dx is zero (D21).

    Where rows are not centred, whether it is zero.
    """
    first = decode(dy[0]) * decode(gamma[0])
    if centred is None and first != 0:
        return False
    for j in range(dy.shape[0] - 1, 0, -1):
        if decode(dy[j]) * decode(gamma[j]) != first:
            return False
    return True
