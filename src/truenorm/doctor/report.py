"""What an examination found."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Diagnosis", "Line", "Section", "without_home"]


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
    """All that was looked at.

    Attributes
    ----------
    date : str
    full : bool
        Whether the long checks were made too.
    sections : tuple of Section
    """

    date: str
    full: bool
    sections: tuple[Section, ...]

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
        return {
            "healthy": self.healthy,
            "date": self.date,
            "full": self.full,
            "problems": [vars(line) for line in self.problems],
            "sections": {
                section.title: {
                    "seconds": section.seconds,
                    "lines": [vars(line) for line in section.lines],
                }
                for section in self.sections
            },
        }


def without_home(text: str) -> str:
    """Return a text with ``~`` for the home folder, whose name is nobody's business."""
    try:
        home = str(Path.home())
    except RuntimeError:  # there is none
        return text
    return text.replace(home + os.sep, "~" + os.sep) if len(home) > 1 else text
