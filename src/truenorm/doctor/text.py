"""A diagnosis as plain text, in the fence that keeps its columns in an issue."""

from truenorm.doctor.report import Diagnosis, Section
from truenorm.tools.text import duration, one_line

__all__ = ["conclusion", "heading", "to_text"]

WIDTH = 20
"""Of the column of names."""


def to_text(diagnosis: Diagnosis) -> str:
    """Return everything, ready to be pasted."""
    lines = ["```text", f"truenorm doctor{' --full' if diagnosis.full else ''}, {diagnosis.date}"]
    for section in diagnosis.sections:
        lines += ["", heading(section)]
        for line in section.lines:
            lines.append(f"  {line.name:{WIDTH}s}{one_line(line.value)}")
            if line.remedy:
                lines.append(f"  {'':{WIDTH}s}-> {one_line(line.remedy)}")
    return "\n".join([*lines, "", conclusion(diagnosis), "```"])


def heading(section: Section) -> str:
    """Return the title, and how long it took if that is known."""
    took = "" if section.seconds is None else f" ({duration(section.seconds)})"
    return section.title + took


def conclusion(diagnosis: Diagnosis) -> str:
    """Return the last line: whether something is wrong, and where the remedy is."""
    count = len(diagnosis.problems)
    if not count:
        return "HEALTHY: nothing is wrong."
    names = ", ".join(line.name for line in diagnosis.problems)
    things = "1 thing is" if count == 1 else f"{count} things are"
    return f"PROBLEM: {things} wrong ({names}); the lines with -> say what to do."
