"""A right subject in exact integers, for float32: each result is the exact answer rounded once.

Integers have nothing to say of numbers that are not finite: such rows and columns are left to
`Kernel`. Rows that occur many times are computed once.
"""

from collections import defaultdict
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from truenorm.exact import (
    FLOAT32,
    ExactRow,
    RowGradient,
    Term,
    round_ratio,
    round_sum_of_roots,
    scaled_integers,
)
from truenorm.verify.types import Array
from verify.planted.base import Kernel, Saved

RIGHT_IN_FLOAT64 = Kernel()


class ExactSaved(NamedTuple):
    saved: Saved
    eps: float


def forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, ExactSaved]:
    y, saved = RIGHT_IN_FLOAT64.forward(x, gamma, beta, eps)
    if np.isfinite(gamma).all() and np.isfinite(beta).all():
        parameters = list(zip(gamma.tolist(), beta.tolist(), strict=True))
        for same in _alike(x):
            row = ExactRow(x[same[0]].tolist(), eps)
            y[same] = [row.y(j, *pair, FLOAT32) for j, pair in enumerate(parameters)]
    return y, ExactSaved(saved, eps)


def backward(dy: Array, kept: ExactSaved) -> tuple[Array, Array | None, Array | None]:
    saved, eps = kept
    dx, dgamma, dbeta = RIGHT_IN_FLOAT64.backward(dy, saved)
    assert saved.gamma is not None
    assert dgamma is not None
    assert dbeta is not None
    groups = _alike(saved.x, dy)
    rows = [ExactRow(saved.x[same[0]].tolist(), eps) for same in groups]
    if np.isfinite(saved.gamma).all():
        gamma = scaled_integers(saved.gamma.tolist())
        for row, same in zip(rows, groups, strict=True):
            gradient = RowGradient(row, gamma, dy[same[0]].tolist())
            dx[same] = [gradient.dx(j, FLOAT32) for j in range(dy.shape[1])]
    if np.isfinite(saved.x).all() and np.isfinite(dy).all():
        for j in range(dy.shape[1]):
            shares = [Fraction(dy[same[0], j].item()) * len(same) for same in groups]
            dgamma[j] = round_sum_of_roots(
                [
                    Term(share.numerator * row.centred[j], share.denominator * row.scale, row.root)
                    for share, row in zip(shares, rows, strict=True)
                ],
                FLOAT32,
            )
            total = sum(shares, Fraction(0))
            dbeta[j] = round_ratio(total.numerator, total.denominator, FLOAT32)
    return dx, dgamma, dbeta


def _alike(*arrays: Array) -> list[list[int]]:
    """Return the places of each row, of several arrays side by side, that is finite."""
    places: dict[bytes, list[int]] = defaultdict(list)
    beside = np.concatenate(arrays, axis=1)
    for place in np.flatnonzero(np.isfinite(beside).all(axis=1)).tolist():
        places[beside[place].tobytes()].append(place)
    return list(places.values())
