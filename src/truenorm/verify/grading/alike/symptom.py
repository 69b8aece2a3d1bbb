"""What one check has to say of one case."""

from dataclasses import dataclass

from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import Record
from truenorm.verify.types import Array

__all__ = ["Symptom", "of_another_shape"]


@dataclass(frozen=True)
class Symptom:
    """Something that is wrong with one output of one case."""

    guard: str
    case: Case
    record: Record
    output: str
    text: str
    at: tuple[int, ...] = ()
    severity: float = 0.0
    natural: float = 0.0
    right: float | None = None  # where `expected` is not asked: what it should be there,
    allowed: float = 0.0  # and how far off it may be


def of_another_shape(
    output: str, result: Array | None, shape: tuple[int, ...], where: str = ""
) -> str:
    """Say of a result that it is missing, or has another shape than it should."""
    came = "None" if result is None else f"shape {result.shape}"
    return f"{output} is {came}{where}; it should have the shape {shape}"
