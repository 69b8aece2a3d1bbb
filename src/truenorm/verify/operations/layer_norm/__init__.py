"""Layer normalization, as the judge sees it."""

from pathlib import Path
from typing import Any

from truenorm.verify.operation import Case
from truenorm.verify.operations.norms import Norm
from truenorm.verify.types import Array

__all__ = ["EXTENSIONS", "LAYER_NORM", "OUTPUTS", "LayerNorm", "layer_norm_case"]


class LayerNorm(Norm):
    """y = gamma*(x - mean)/sqrt(var + eps) + beta, and its gradients."""

    name = "layer_norm"
    title = "layer normalization"
    centred = True
    parameters = ("gamma", "beta")
    condition = "rms(x)/sqrt(var + eps)"
    condition_says = "κ = rms(x)/√(var + ε) says how much of a row is mean."
    case_file = "layer_norm/cases.toml"
    folder = Path(__file__).parent


LAYER_NORM = LayerNorm()
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
