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
from verify.planted.base import Kernel, Results, Saved


class ExactSaved(NamedTuple):
    saved: Saved
    eps: float


class ExactKernel(Kernel):
    """A kernel whose finite rows and columns are computed again."""

    def row(self, x: Array, eps: float) -> ExactRow:
        return ExactRow(x.tolist(), eps, is_centred=self.centred)

    def forward(
        self, x: Array, gamma: Array | None, beta: Array | None, eps: float
    ) -> tuple[Array, ExactSaved]:
        y, saved = super().forward(x, gamma, beta, eps)
        parameters = np.stack([self.gamma(saved), self.beta(saved)], axis=-1)
        if np.isfinite(parameters).all():
            for same in _alike(x):
                row = self.row(x[same[0]], eps)
                pairs = enumerate(parameters.tolist())
                y[same] = [row.y(j, gamma_j, beta_j, FLOAT32) for j, (gamma_j, beta_j) in pairs]
        return y, ExactSaved(saved, eps)

    def backward(self, dy: Array, kept: ExactSaved) -> Results:
        saved, eps = kept
        dx, dgamma, dbeta = super().backward(dy, saved)
        groups = _alike(saved.x, dy)
        rows = [self.row(saved.x[same[0]], eps) for same in groups]
        if np.isfinite(self.gamma(saved)).all():
            gamma = scaled_integers(self.gamma(saved).tolist())
            for row, same in zip(rows, groups, strict=True):
                gradient = RowGradient(row, gamma, dy[same[0]].tolist())
                dx[same] = [gradient.dx(j, FLOAT32) for j in range(dy.shape[1])]
        if np.isfinite(saved.x).all() and np.isfinite(dy).all():
            for j in range(dy.shape[1]):
                shares = [Fraction(dy[same[0], j].item()) * len(same) for same in groups]
                if dgamma is not None:
                    dgamma[j] = _dgamma(j, shares, rows)
                if dbeta is not None:
                    total = sum(shares, Fraction(0))
                    dbeta[j] = round_ratio(total.numerator, total.denominator, FLOAT32)
        return dx, dgamma, dbeta


def _dgamma(j: int, shares: list[Fraction], rows: list[ExactRow]) -> float:
    terms = [
        Term(share.numerator * row.centred[j], share.denominator * row.scale, row.root)
        for share, row in zip(shares, rows, strict=True)
    ]
    return round_sum_of_roots(terms, FLOAT32)


def _alike(*arrays: Array) -> list[list[int]]:
    """Return the places of each row, of several arrays side by side, that is finite."""
    places: dict[bytes, list[int]] = defaultdict(list)
    beside = np.concatenate(arrays, axis=1)
    for place in np.flatnonzero(np.isfinite(beside).all(axis=1)).tolist():
        places[beside[place].tobytes()].append(place)
    return list(places.values())
