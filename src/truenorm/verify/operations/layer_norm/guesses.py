"""The results of a case in plain float64: near the exact ones, and the same on every machine.

What is kept of an exact number is how far it is from here, which is a few ulp and hence a few
bits. A guess that is bad costs room, and nothing else.
"""

from collections.abc import Mapping

import numpy as np

from truenorm.verify.operation import Guess
from truenorm.verify.types import Float64s

__all__ = ["GUESSES"]

Arrays = Mapping[str, Float64s]


def _sum(terms: Float64s) -> Float64s:
    """Add up along the first axis, by halves: NumPy's own sums depend on the processor."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = np.concatenate([terms[:half] + terms[half : 2 * half], terms[2 * half :]])
    total: Float64s = terms.sum(axis=0)  # of one, or of none
    return total


def _mean(rows: Float64s) -> Float64s:
    """Return the mean of each row, as a column."""
    means: Float64s = _sum(rows.T)[:, np.newaxis] / rows.shape[1]
    return means


def _centred(known: Arrays) -> Float64s:
    return known["x"] - _mean(known["x"])


def _r(known: Arrays) -> Float64s:
    c = _centred(known)
    r: Float64s = 1 / np.sqrt(_mean(c * c) + known["eps"])
    return r


def _gamma(known: Arrays) -> Float64s:
    return known["gamma"] if "gamma" in known else np.ones(known["x"].shape[1])


def _y(known: Arrays) -> Float64s:
    scaled = _gamma(known) * known["xhat"]
    return scaled + known["beta"] if "beta" in known else scaled


def _dx(known: Arrays) -> Float64s:
    g, xhat = _gamma(known) * known["dy"], known["xhat"]
    return known["r"] * (g - _mean(g) - xhat * _mean(g * xhat))


GUESSES: Mapping[str, Guess] = {
    "r": _r,
    "xhat": lambda known: _centred(known) * known["r"],
    "y": _y,
    "dx": _dx,
    "dgamma": lambda known: known["repeats"] * _sum(known["dy"] * known["xhat"]),
    "dbeta": lambda known: known["repeats"] * _sum(known["dy"]),
}
