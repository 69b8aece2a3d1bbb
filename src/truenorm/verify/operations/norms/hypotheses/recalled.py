"""Hypotheses of what backward makes of a row: xhat from y, and rows whose dy is 0."""

import numpy as np

from truenorm.verify.operations.norms.definition import Definition
from truenorm.verify.operations.norms.hypotheses.steps import Changes, Steps, rounded
from truenorm.verify.types import Float64s

__all__ = ["of_recalled"]


def of_recalled(norm: Definition) -> dict[str, Changes]:
    """Return by their words what may be wrong with what backward starts from."""
    back = "(y - beta)/gain" if "beta" in norm.parameters else "y/gain"
    return {
        f"xhat is taken from y, as {back}": {"xhat": lambda at: _from_y(at, _y(at))},
        f"xhat is taken from the rounded y, as {back}": {
            "xhat": lambda at: _from_y(at, rounded(_y(at), at.type_of_y))
        },
        "a row whose dy is 0 is divided by 0": {"dnorm": _divided},
    }


def _y(at: Steps) -> Float64s:
    return at.right("xhat") * at["gain"] + at["beta"]


def _from_y(at: Steps, y: Float64s) -> Float64s:
    return (y - at["beta"]) / at["gain"]


def _divided(at: Steps) -> Float64s:
    is_zero = (at["dy"] == 0).all(axis=1, keepdims=True)
    return np.where(is_zero, np.nan, at.right("dnorm"))
