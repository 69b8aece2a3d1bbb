"""A block of rows in correct mode: through the levels until every element is settled."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.reference import integers, pairs, structure, working_precision
from truenorm.kernels.reference.working_precision import ColumnTerms, Statistics
from truenorm.kernels.rounding import Tested

__all__ = ["NarrowGradient", "narrow_backward", "narrow_forward", "wide_backward", "wide_forward"]

Float64 = NDArray[np.float64]


class NarrowGradient(NamedTuple):
    """dx of a block, its share of dgamma, and which rows have changed since forward."""

    dx: Tested
    dgamma: ColumnTerms
    changed: NDArray[np.bool_]


def narrow_forward(
    x: Float64, gamma: Float64, beta: Float64, eps: float, target: FloatFormat
) -> tuple[Tested, Float64]:
    """Return y and what is kept of the rows, for types of at most float32: levels 0 to 3."""
    tested, found = working_precision.forward(x, gamma, beta, eps, target)
    _ignore_undefined(tested, found.v + eps)
    structure.accept_beta(tested, x, found.v == 0, gamma, beta, target)
    _second_opinion_y(tested, x, gamma, beta, eps, target)
    integers.settle_y(tested, x, gamma, beta, eps, target)
    return tested, np.hstack(found)


def wide_forward(
    x: Float64, gamma: Float64, beta: Float64, eps: float, target: FloatFormat
) -> tuple[Tested, Float64]:
    """Return y and what is kept of the rows, where a float64 takes part: levels 0, 2 and 3."""
    rows = pairs.describe(x, eps)
    tested = pairs.forward(rows, gamma, beta, target)
    _ignore_undefined(tested, np.where(rows.constant, eps, 1.0))
    is_beta = rows.constant | (gamma == 0)
    structure.put_beta(tested, is_beta, beta, target)
    integers.settle_y(tested, x, gamma, beta, eps, target)
    return tested, np.hstack([*rows.mean, rows.mean_exponent])


def narrow_backward(
    dy: Float64, x: Float64, kept: Float64, gamma: Float64, eps: float, target: FloatFormat
) -> NarrowGradient:
    """Return the gradients of a block, for types of at most float32: levels 0 to 3."""
    found = Statistics(*np.hsplit(kept, 3))
    gradient = working_precision.backward(dy, x, found, gamma, eps, target)
    tested = gradient.dx
    _ignore_undefined(tested, found.v + eps)
    structure.accept_zero_dx(tested, gamma * dy)
    _second_opinion_dx(tested, dy, x, gamma, eps, target)
    integers.settle_dx(tested, dy, x, gamma, eps, target)
    changed = ~(gradient.drift <= 1) & (found.v + eps > 0)
    return NarrowGradient(tested, gradient.dgamma, changed)


def wide_backward(
    dy: Float64, x: Float64, gamma: Float64, eps: float, target: FloatFormat
) -> tuple[Tested, pairs.PairRows]:
    """Return dx of a block, where a float64 takes part, and the rows for `column_sum`."""
    rows = pairs.describe(x, eps)
    tested = pairs.backward(rows, dy, gamma, target)
    _ignore_undefined(tested, np.where(rows.constant, eps, 1.0))
    integers.settle_dx(tested, dy, x, gamma, eps, target)
    return tested, rows


def _ignore_undefined(tested: Tested, w: Float64) -> None:
    """Leave rows of w = 0 alone: their results are NaN by definition."""
    tested.refused[(w == 0)[:, 0]] = False


def _second_opinion_y(
    tested: Tested,
    x: Float64,
    gamma: Float64,
    beta: Float64,
    eps: float,
    target: FloatFormat,
) -> None:
    """Try double-double on the rows with refused elements, and take what it accepts."""
    rows = np.flatnonzero(tested.refused.any(axis=1))
    if len(rows):
        better = pairs.forward(pairs.describe(x[rows], eps), gamma, beta, target)
        _take(tested, rows, better)


def _second_opinion_dx(
    tested: Tested, dy: Float64, x: Float64, gamma: Float64, eps: float, target: FloatFormat
) -> None:
    """Try double-double on the rows with refused elements, and take what it accepts."""
    rows = np.flatnonzero(tested.refused.any(axis=1))
    if len(rows):
        better = pairs.backward(pairs.describe(x[rows], eps), dy[rows], gamma, target)
        _take(tested, rows, better)


def _take(tested: Tested, rows: NDArray[np.intp], better: Tested) -> None:
    """Replace what was refused by what the next level says of it."""
    refused = tested.refused[rows]
    values = tested.values[rows]
    values[refused] = better.values[refused]
    tested.values[rows] = values
    tested.refused[rows] = refused & better.refused
