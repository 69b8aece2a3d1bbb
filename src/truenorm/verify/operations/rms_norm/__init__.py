"""RMS normalization, as the judge sees it: no mean is subtracted, and there is no beta."""

from pathlib import Path
from typing import Any

from truenorm.verify.operation import Case
from truenorm.verify.operations.norms import Norm
from truenorm.verify.types import Array

__all__ = ["RMS_NORM", "RmsNorm", "rms_norm_case"]


class RmsNorm(Norm):
    """y = gamma*x/sqrt(mean(x^2) + eps), and its gradients."""

    name = "rms_norm"
    title = "RMS normalization"
    centred = False
    parameters = ("gamma",)
    condition = "1"
    condition_says = "κ is 1: no mean is subtracted, so that no row is harder than another."
    case_file = "rms_norm/cases.toml"
    folder = Path(__file__).parent


RMS_NORM = RmsNorm()


def rms_norm_case(
    name: str, arrays: tuple[Array, Array | None, Array], eps: float, **about: Any
) -> Case:
    """Return a case of x, gamma and dy."""
    inputs = dict(zip(("x", "gamma", "dy"), arrays, strict=True))
    return Case(RMS_NORM, name, arrays[0].dtype.name, inputs, eps, **about)
