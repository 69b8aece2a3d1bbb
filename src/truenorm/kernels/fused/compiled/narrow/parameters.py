"""gamma and beta as they are passed, widened where they are used, a few columns at a time."""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode, encode
from truenorm.kernels.fused.compiled.elements.vectors import prefer_wide_vectors
from truenorm.kernels.fused.compiled.rows.sums import depth_of_sum
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import BETA, COLUMNS, GAMMA, WEIGHT, Coded, Numbers

__all__ = [
    "PARAMETERS",
    "prepare",
    "share_of_gamma",
    "widen_gamma",
    "widen_parameters",
    "write_constant",
]

PARAMETERS = 3 * COLUMNS
"""Scratch for what forward needs of some columns."""


@compiled
def share_of_gamma(size: int) -> Any:
    """Return the share of |gamma| in the weight of a column, for rows of a size.

    (E7), or (E14), is at most K*(|z| + |beta| + share*|gamma|) with K = 1.01*(rho_r + 6u), where
    share is the most that r*(delta_mu + u*s) can be of rho_r + 6u, whatever the spread (E15).
    """
    depth = depth_of_sum(size)
    return (depth + 3) / (2 * np.sqrt(4.25 * (depth + 6)))


@compiled
def widen_parameters(
    gamma: Coded,
    beta: Coded,
    share: float,
    like: Coded,
    scales: Numbers,
    shifts: Numbers,
    weights: Numbers,
) -> Any:
    """Write gamma, beta and the weight of some columns (E15).

    Where gamma = 0, y is beta rounded, and beta is put in its place that rounded: nothing is
    refused there. Returns whether all is finite, what is put there included.
    """
    prefer_wide_vectors()
    element = like[0]
    infinite = np.int32(0)
    for j in range(gamma.shape[0]):
        scale, shift = decode(gamma[j]), decode(beta[j]) + 0.0  # a zero is +0, also beta = -0
        rounded = decode(encode(shift, element))
        # A zero would lose its sign.
        shift = rounded if (scale == 0) & (rounded != 0) else shift
        weight = abs(shift) + share * abs(scale)
        scales[j] = scale
        shifts[j] = shift
        weights[j] = weight
        infinite = np.int32(infinite | np.int32(not weight < np.inf))
    return infinite == 0


@kernel
def prepare(gamma: Coded, beta: Coded, columns: Numbers, constant: Coded) -> None:
    """Write what forward needs of all columns, and y of a row without spread."""
    share = share_of_gamma(gamma.shape[0])
    widen_parameters(gamma, beta, share, constant, columns[GAMMA], columns[BETA], columns[WEIGHT])
    write_constant(beta, constant)


@compiled
def widen_gamma(gamma: Coded, columns: Numbers) -> Any:
    """Write gamma of at most COLUMNS columns, and return whether it is finite."""
    prefer_wide_vectors()
    infinite = np.int32(0)
    for j in range(gamma.shape[0]):
        scale = decode(gamma[j])
        columns[j] = scale
        infinite = np.int32(infinite | np.int32(not abs(scale) < np.inf))
    return infinite == 0


@compiled
def write_constant(beta: Coded, y: Coded) -> Any:
    """Write y of a row without spread: beta, rounded. Return whether beta is finite."""
    like = y[0]
    finite = True
    for j in range(y.shape[0]):
        shift = decode(beta[j]) + 0.0  # an exact zero is +0, also for beta = -0
        y[j] = encode(shift, like)
        finite &= abs(shift) < np.inf
    return finite
