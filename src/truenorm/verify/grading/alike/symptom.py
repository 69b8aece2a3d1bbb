"""What one check has to say of one case."""

from dataclasses import dataclass

from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import Record

__all__ = ["Symptom"]


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
