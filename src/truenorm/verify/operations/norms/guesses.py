"""The results of a case in plain float64: near the exact ones, and the same on every machine.

What is kept of an exact number is how far it is from here, which is a few ulp and hence a few
bits. A guess that is bad costs room, and nothing else.
"""

from collections.abc import Mapping

import numpy as np

from truenorm.verify.operations.norms.definition import Definition
from truenorm.verify.parts import Guess
from truenorm.verify.types import Float64s

__all__ = ["guesses_of"]

Arrays = Mapping[str, Float64s]


def _total(terms: Float64s) -> Float64s:
    """Add up along the first axis, by halves: NumPy's own sums depend on the processor."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = np.concatenate([terms[:half] + terms[half : 2 * half], terms[2 * half :]])
    total: Float64s = terms.sum(axis=0)  # of one, or of none
    return total


def _mean(rows: Float64s) -> Float64s:
    """Return the mean of each row, as a column."""
    means: Float64s = _total(rows.T)[:, np.newaxis] / rows.shape[1]
    return means


def _sum(known: Arrays) -> Float64s:
    """Return what is normalized; where it is rounded, nearly."""
    return known["x"] + known["residual"] if "residual" in known else known["x"]


def guesses_of(norm: Definition) -> dict[str, Guess]:
    """Return the definitions of a norm, those of a row's statistics first."""
    offset = float(norm.gain == "zero-centred")

    def gain(known: Arrays) -> Float64s:
        return known["gamma"] + offset if "gamma" in known else np.ones(known["x"].shape[1])

    def c(known: Arrays) -> Float64s:
        return _sum(known) - _mean(_sum(known)) if norm.centred else _sum(known)

    def r(known: Arrays) -> Float64s:
        inverse: Float64s = 1 / np.sqrt(_mean(c(known) * c(known)) + known["eps"])
        return inverse

    def y(known: Arrays) -> Float64s:
        scaled = gain(known) * known["xhat"]
        return scaled + known["beta"] if "beta" in known else scaled

    def dx(known: Arrays) -> Float64s:
        g, xhat = gain(known) * known["dy"], known["xhat"]
        kept = g - _mean(g) if norm.centred else g
        found = known["r"] * (kept - xhat * _mean(g * xhat))
        return found + known["dsum"] if "dsum" in known else found

    return {
        "r": r,
        "xhat": lambda known: c(known) * known["r"],
        "y": y,
        "sum": _sum,
        "dx": dx,
        "dresidual": lambda known: known["dx"][..., 0],
        "dgamma": lambda known: known["repeats"] * _total(known["dy"] * known["xhat"]),
        "dbeta": lambda known: known["repeats"] * _total(known["dy"]),
    }
