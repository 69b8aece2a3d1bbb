"""Layer normalization, as the judge sees it."""

from typing import Any

from truenorm.verify.operation import Case
from truenorm.verify.operations.norms import Norm
from truenorm.verify.types import Array

__all__ = ["EXTENSIONS", "LAYER_NORM", "OUTPUTS", "layer_norm_case"]

LAYER_NORM = Norm("layer_norm")
EXTENSIONS = LAYER_NORM.extensions
"""What is judged only where a subject asks for it, by name."""
OUTPUTS = tuple(each.name for each in LAYER_NORM.outputs)


def layer_norm_case(
    name: str,
    arrays: tuple[Array, Array | None, Array | None, Array],
    eps: float,
    **about: Any,
) -> Case:
    """Return a case of x, gamma, beta and dy."""
    inputs = dict(zip(("x", "gamma", "beta", "dy"), arrays, strict=True))
    return Case(LAYER_NORM, name, arrays[0].dtype.name, inputs, eps, **about)
