"""What an examination found."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Diagnosis", "Line", "Section"]


@dataclass(frozen=True)
class Line:
    """One thing that was looked at; `remedy` says what to do, if something is wrong."""

    name: str
    value: str
    remedy: str = ""


@dataclass(frozen=True)
class Section:
    """Lines that belong together. `seconds` is how long it took, where that is of interest."""

    title: str
    lines: tuple[Line, ...]
    seconds: float | None = None

    @property
    def problems(self) -> list[Line]:
        """What is wrong."""
        return [line for line in self.lines if line.remedy]


@dataclass(frozen=True)
class Diagnosis:
    """All that was looked at, on a date; `full` and `gpu` tell which further checks were made."""

    date: str
    full: bool
    sections: tuple[Section, ...]
    gpu: bool = False

    @property
    def problems(self) -> list[Line]:
        """What is wrong, in all sections."""
        return [line for section in self.sections for line in section.problems]

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        sections = {
            each.title: {"seconds": each.seconds, "lines": each.lines} for each in self.sections
        }
        asked = {"full": self.full, "gpu": self.gpu}
        found = {"healthy": self.healthy, "date": self.date, **asked}
        return {**found, "problems": self.problems, "sections": sections}
