"""What a subject computes if it is another norm than it was said to be."""

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.operations.norms.definition import Definition
from truenorm.verify.types import Float64s

__all__ = ["mistaken_for"]

CENTRED = {True: "layer normalization", False: "RMS normalization"}


def mistaken_for(norm: Definition, case: Case) -> dict[str, Float64s]:
    """Return y of ordinary rows, in float64, by the definitions of relatives."""
    if case.family != "normal":
        return {}
    rows = norm.normalized(case)
    zero_centred = norm.gain == "zero-centred"

    def y(of: Float64s, *, centred: bool = norm.centred, offset: bool = zero_centred) -> Float64s:
        c = of - of.mean(axis=1, keepdims=True) if centred else of
        xhat = c / np.sqrt((c * c).mean(axis=1, keepdims=True) + case.eps)
        gamma, beta = case.gamma, case.inputs.get("beta")
        gain = 1.0 if gamma is None else gamma.astype(np.float64) + offset
        return np.asarray(xhat * gain + (0.0 if beta is None else beta.astype(np.float64)))

    found = {CENTRED[not norm.centred]: y(rows, centred=not norm.centred)}
    other_gain = "a gain of gamma, and not of 1 + gamma" if zero_centred else "a gain of 1 + gamma"
    found[other_gain] = y(rows, offset=not zero_centred)
    if norm.adds:
        found["the norm of x, without the residual"] = y(case.x.astype(np.float64))
        found["the norm of the residual, without x"] = y(case.residual.astype(np.float64))
    return found
