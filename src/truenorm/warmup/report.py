"""What was compiled or loaded, and where it is kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Report", "Step"]


@dataclass(frozen=True)
class Step:
    """One pass of one norm and type in one mode: functions that it was the first to need."""

    operation: str
    dtype: str
    rounding: str
    direction: str  # forward or backward
    compiled: int
    loaded: int  # with all that was compiled into them
    seconds: float


@dataclass(frozen=True)
class Report:
    """All steps, and what the next process will find."""

    steps: tuple[Step, ...]
    folder: Path | None  # None if nothing can be kept
    functions: int  # in the folder, those of other types and earlier runs among them
    why_not: str = ""
    notes: tuple[str, ...] = ()

    @property
    def compiled(self) -> int:
        """How many functions were compiled."""
        return sum(step.compiled for step in self.steps)

    @property
    def seconds(self) -> float:
        """How long all steps took."""
        return sum(step.seconds for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        folder = None if self.folder is None else str(self.folder)
        return {**vars(self), "folder": folder, "compiled": self.compiled, "seconds": self.seconds}
