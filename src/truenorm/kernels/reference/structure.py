"""Level 0: what is exact by structure: a rounding test refuses every zero and every tie."""

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.reference.sums import row_sums
from truenorm.kernels.rounding import Tested, round_to

__all__ = ["accept_beta", "accept_zero_dx", "exactly_at_mean", "put_beta"]

Float64 = NDArray[np.float64]


def accept_beta(
    tested: Tested,
    x: Float64,
    constant: NDArray[np.bool_],
    gamma: Float64,
    beta: Float64,
    target: FloatFormat,
) -> None:
    """Where c = 0 or gamma = 0, y is beta rounded: put it there, and accept it."""
    is_beta = constant | (gamma == 0)
    unsure = (tested.refused & ~is_beta).any(axis=1)
    is_beta[unsure] |= exactly_at_mean(x[unsure])
    put_beta(tested, is_beta, beta, target)


def put_beta(
    tested: Tested, is_beta: NDArray[np.bool_], beta: Float64, target: FloatFormat
) -> None:
    """Put beta, rounded, where it is the result; an exact zero is +0."""
    np.copyto(tested.values, round_to(beta + 0.0, target), where=is_beta)
    tested.refused[is_beta] = False


def accept_zero_dx(tested: Tested, g: Float64) -> None:
    """Where g is the same all along a row, dx is zero (D21): the gradient of y.sum()."""
    same = (g == g[:, :1]).all(axis=1)
    tested.values[same] = 0
    tested.refused[same] = False


def exactly_at_mean(x: Float64) -> NDArray[np.bool_]:
    """Return which elements are known to equal the mean of their row: D*x = sum(x).

    If all x of a row are multiples of some 2**k, and sum|x| < 2**(k + 53), then every partial sum
    is a float64, so the sum is exact in any order. D*x is exact for x of at most 24 bits.
    """
    limit = np.frexp(2 * row_sums(np.abs(x)))[1]
    in_units = np.ldexp(x, 53 - limit)
    exact = (np.rint(in_units) == in_units).all(axis=1, keepdims=True)
    at_mean: NDArray[np.bool_] = x * x.shape[1] == row_sums(x)
    at_mean &= exact
    return at_mean
