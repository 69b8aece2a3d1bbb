"""Formulas, from which exact answers, gradients and hypotheses are derived.

The operators that a formula may use are imported from here.
"""

from truenorm.verify.formulas.operators import (
    erf,
    exp,
    first,
    inverse_root,
    largest,
    log,
    mean,
    rotate_half,
    sigmoid,
    take,
    tanh,
    total,
    where,
)

__all__ = [
    "erf",
    "exp",
    "first",
    "inverse_root",
    "largest",
    "log",
    "mean",
    "rotate_half",
    "sigmoid",
    "take",
    "tanh",
    "total",
    "where",
]
