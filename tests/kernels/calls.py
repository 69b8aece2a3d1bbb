"""Calls as backends are told of them, for tests of one level."""

import numpy as np

from promise.families import Array
from truenorm.exact import FLOAT32, FloatFormat
from truenorm.kernels.call import Call
from truenorm.kernels.norm import LAYER_NORM, Norm

__all__ = ["call_for"]


def call_for(
    x: Array,
    gamma: Array,
    beta: Array,
    eps: float,
    target: FloatFormat = FLOAT32,
    norm: Norm = LAYER_NORM,
) -> Call:
    """Return the call of correct mode for rows and parameters in float64."""
    return Call(
        norm=norm,
        eps=eps,
        level="narrow",
        count=x.shape[0],
        size=x.shape[1],
        target=target,
        gamma=gamma,
        beta=beta,
        special=np.zeros(x.shape[1], bool),
        of_gamma=target,
        of_beta=target,
        threads=None,
    )
