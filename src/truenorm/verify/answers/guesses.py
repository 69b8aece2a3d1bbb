"""The results of a case in plain float64: near the exact ones, and the same on every machine.

What is kept of an answer is how far it is from here, which is a few ulp and hence a few bits. A
guess that is bad costs room, and nothing else.
"""

from collections.abc import Mapping

import numpy as np

from truenorm.verify.answers.question import Guess, Known
from truenorm.verify.types import Float64s

__all__ = ["LAYER_NORM"]


def _sum(terms: Float64s) -> Float64s:
    """Add up along the first axis, by halves: NumPy's own sums depend on the processor."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = np.concatenate([terms[:half] + terms[half : 2 * half], terms[2 * half :]])
    total: Float64s = terms.sum(axis=0)  # of one, or of none
    return total


def _mean(rows: Float64s) -> Float64s:
    """Return the mean of each row, as a column."""
    return _sum(rows.T)[:, np.newaxis] / rows.shape[1]


def _r(known: Known) -> Float64s:
    centred = known["x"] - _mean(known["x"])
    r: Float64s = 1 / np.sqrt(_mean(centred * centred) + known["eps"])
    return r


def _dx(known: Known) -> Float64s:
    g, xhat = known["gamma"] * known["dy"], known["xhat"]
    return known["r"] * (g - _mean(g) - xhat * _mean(g * xhat))


LAYER_NORM: Mapping[str, Guess] = {
    "r": _r,
    "xhat": lambda known: (known["x"] - _mean(known["x"])) * known["r"],
    "y": lambda known: known["gamma"] * known["xhat"] + known["beta"],
    "dx": _dx,
    "dgamma": lambda known: known["repeats"] * _sum(known["dy"] * known["xhat"]),
    "dbeta": lambda known: known["repeats"] * _sum(known["dy"]),
}
"""From x, dy, gamma, beta, eps and the number of times that the rows are repeated."""
