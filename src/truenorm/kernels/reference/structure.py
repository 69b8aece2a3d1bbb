"""Level 0: what is exact by structure: a rounding test refuses every zero and every tie."""

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.call import Call
from truenorm.kernels.reference.sums import row_sums
from truenorm.kernels.rounding import Tested, round_to

__all__ = [
    "accept_beta",
    "accept_beta_at_mean",
    "accept_zero_at_zero",
    "accept_zero_dx",
    "exactly_at_mean",
]

Float64 = NDArray[np.float64]


def accept_beta(tested: Tested, without_spread: NDArray[np.bool_], call: Call) -> None:
    """In a row where c = 0, and where gamma = 0, y is beta rounded; an exact zero is +0."""
    if not tested.refused.any():  # what is accepted is right
        return
    rounded = round_to(call.beta + 0.0, call.target)
    rows, columns = np.flatnonzero(without_spread), np.flatnonzero(call.gamma == 0)
    tested.values[rows] = rounded
    tested.refused[rows] = False
    tested.values[:, columns] = rounded[columns]
    tested.refused[:, columns] = False


def accept_beta_at_mean(tested: Tested, x: Float64, call: Call) -> None:
    """Where a refused element equals the mean of its row, c = 0 and y is beta rounded."""
    at_mean = exactly_at_mean(x) if call.norm.centred else x == 0
    at_mean &= tested.refused
    np.copyto(tested.values, round_to(call.beta + 0.0, call.target), where=at_mean)
    tested.refused[at_mean] = False


def accept_zero_dx(tested: Tested, dy: Float64, call: Call) -> None:
    """Where g is the same all along a row, dx is zero (D21): the gradient of y.sum().

    Where rows are not centred, if g is zero.
    """
    gamma = call.gamma
    first = dy[:, 0] * gamma[0]
    rows = np.flatnonzero(first == dy[:, -1] * gamma[-1])
    if not len(rows):
        return
    g = dy[rows] * gamma
    rows = rows[(g == (g[:, :1] if call.norm.centred else 0.0)).all(axis=1)]
    tested.values[rows] = 0
    tested.refused[rows] = False


def accept_zero_at_zero(tested: Tested, dy: Float64, x: Float64, call: Call) -> None:
    """Where x and g are zero, so is dx of a row that is not centred (D29)."""
    if not call.norm.centred and tested.refused.any():
        zero = (x == 0) & ((dy == 0) | (call.gamma == 0))
        tested.values[zero] = 0
        tested.refused[zero] = False


def exactly_at_mean(x: Float64) -> NDArray[np.bool_]:
    """Return which elements are known to equal the mean of their row: D*x = sum(x).

    If all x of a row are multiples of some 2**k, and sum|x| < 2**(k + 53), then every partial sum
    is a float64, so the sum is exact in any order. For x of at most float32, whose sums and
    products with D are exact in float64 where this says so; of float64 rows nothing is known.
    """
    limit = np.frexp(2 * row_sums(np.abs(x)))[1]
    in_units = np.ldexp(x, 53 - limit)
    exact = (np.rint(in_units) == in_units).all(axis=1, keepdims=True)
    exact &= (x.astype(np.float32) == x).all(axis=1, keepdims=True)
    at_mean: NDArray[np.bool_] = x * x.shape[1] == row_sums(x)
    at_mean &= exact
    return at_mean
