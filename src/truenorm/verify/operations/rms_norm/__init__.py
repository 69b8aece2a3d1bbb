"""RMS normalization, as the judge sees it: no mean is subtracted, and there is no beta."""

from typing import Any

from truenorm.verify.operation import Case
from truenorm.verify.operations.norms import Norm
from truenorm.verify.types import Array

__all__ = ["RMS_NORM", "rms_norm_case"]

RMS_NORM = Norm("rms_norm")


def rms_norm_case(
    name: str, arrays: tuple[Array, Array | None, Array], eps: float, **about: Any
) -> Case:
    """Return a case of x, gamma and dy."""
    inputs = dict(zip(("x", "gamma", "dy"), arrays, strict=True))
    return Case(RMS_NORM, name, arrays[0].dtype.name, inputs, eps, **about)
