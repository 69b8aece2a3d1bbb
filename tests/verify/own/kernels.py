"""Norms of any kind and type in float64, and how a test makes them wrong."""

from collections.abc import Callable
from typing import Any

import numpy as np

import truenorm.verify as tv
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations.norms import Norm
from truenorm.verify.types import Array, dtype_of

Change = Callable[[dict[str, Array]], None]


def subject(
    operation: Operation = tv.LAYER_NORM,
    dtype: str = "float32",
    change: Change | None = None,
    name: str = "float64 inside",
) -> tv.Subject:
    """Return a norm that computes in float64 and rounds once, but for what is changed."""
    assert isinstance(operation, Norm)
    norm = operation

    def spoiled(found: dict[str, Array], names: list[str]) -> tuple[Array, ...]:
        if change:
            change(found)
        return tuple(found[name] for name in names)

    def forward(*given: Any) -> tuple[Any, ...]:
        names = norm.inputs_of("data", "parameter")
        inputs = dict(zip(names, given[:-1], strict=True))
        kind = inputs["x"].dtype
        case = Case(norm, "here", kind.name, {**inputs, "dy": inputs["x"], "dsum": None})
        rows = norm.normalized(case)
        c = rows - rows.mean(axis=1, keepdims=True) if norm.centred else rows
        r = 1 / np.sqrt((c * c).mean(axis=1, keepdims=True) + given[-1])
        gain = inputs["gamma"].astype(np.float64) + (norm.gain == "zero-centred")
        y = gain * c * r + (inputs["beta"].astype(np.float64) if "beta" in inputs else 0)
        found = {"y": y.astype(dtype_of(norm.result_type or kind.name))}
        if norm.adds:
            found["sum"] = inputs["x"] + inputs["residual"]
        saved = (c * r, r, gain, inputs)
        return (*spoiled(found, norm.outputs_of(backward=False)), saved)

    def backward(*given: Any) -> tuple[Array, ...]:
        *gradients, (xhat, r, gain, inputs) = given
        dy, kind = gradients[0].astype(np.float64), inputs["x"].dtype
        g = gain * dy
        slope = g - xhat * (g * xhat).mean(axis=1, keepdims=True)
        dx = r * (slope - g.mean(axis=1, keepdims=True) if norm.centred else slope)
        if norm.adds:
            dx += gradients[1].astype(np.float64)
        of_parameters = inputs["gamma"].dtype
        found = {
            "dx": dx.astype(kind),
            "dresidual": dx.astype(kind),
            "dgamma": (dy * xhat).sum(axis=0).astype(of_parameters),
            "dbeta": dy.sum(axis=0).astype(of_parameters),
        }
        return spoiled(found, norm.outputs_of(backward=True))

    return tv.Subject(forward, backward, name=name, dtypes=[dtype], operation=norm)
