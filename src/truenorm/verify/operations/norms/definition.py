"""What a norm is, as far as its cases, answers and scales depend on it."""

from typing import Protocol

from truenorm.verify.operation import Case
from truenorm.verify.parts import Input
from truenorm.verify.types import Float64s

__all__ = ["Definition"]


class Definition(Protocol):
    """The part of `truenorm.verify.operations.norms.Norm` that others look at."""

    centred: bool
    adds: bool
    gain: str
    sum: str
    parameters: tuple[str, ...]
    parameter_type: str
    result_type: str
    inputs: tuple[Input, ...]

    def normalized(self, case: Case) -> Float64s:
        """Return the rows that are normalized, in float64."""
