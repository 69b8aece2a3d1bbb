"""The results of a case in plain float64: near the exact ones, and the same on every machine.

What is kept of an exact number is how far it is from here, which is a few ulp and hence a few
bits. A guess that is bad costs room, and nothing else.
"""

from collections.abc import Mapping

import numpy as np

from truenorm.verify.operation import Guess
from truenorm.verify.types import Float64s

__all__ = ["guesses_of"]

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


def _gamma(known: Arrays) -> Float64s:
    return known["gamma"] if "gamma" in known else np.ones(known["x"].shape[1])


def _y(known: Arrays) -> Float64s:
    scaled = _gamma(known) * known["xhat"]
    return scaled + known["beta"] if "beta" in known else scaled


def guesses_of(*, centred: bool) -> dict[str, Guess]:
    """Return the definitions of a norm, those of a row's statistics first."""

    def c(known: Arrays) -> Float64s:
        return known["x"] - _mean(known["x"]) if centred else known["x"]

    def r(known: Arrays) -> Float64s:
        inverse: Float64s = 1 / np.sqrt(_mean(c(known) * c(known)) + known["eps"])
        return inverse

    def dx(known: Arrays) -> Float64s:
        g, xhat = _gamma(known) * known["dy"], known["xhat"]
        kept = g - _mean(g) if centred else g
        return known["r"] * (kept - xhat * _mean(g * xhat))

    return {
        "r": r,
        "xhat": lambda known: c(known) * known["r"],
        "y": _y,
        "dx": dx,
        "dgamma": lambda known: known["repeats"] * _sum(known["dy"] * known["xhat"]),
        "dbeta": lambda known: known["repeats"] * _sum(known["dy"]),
    }
