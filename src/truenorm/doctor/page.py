"""A diagnosis for people: plain text that an issue keeps as it is, or colours on a terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truenorm.doctor.report import Diagnosis, Line, Section
from truenorm.tools.text import duration, one_line

__all__ = ["conclusion", "show", "to_text"]

WIDTH = 20
"""Of the column of names."""
TESTED = ("correct to the bit", "correct:", "PASS")
"""How the value of a line begins that has passed a test."""


def to_text(diagnosis: Diagnosis) -> str:
    """Return everything, ready to be pasted."""
    lines = ["```text", f"truenorm doctor{' --full' if diagnosis.full else ''}, {diagnosis.date}"]
    for section in diagnosis.sections:
        lines += ["", _heading(section)]
        for line in section.lines:
            lines.append(f"  {line.name:{WIDTH}s}{one_line(line.value)}")
            if line.remedy:
                lines.append(f"  {'':{WIDTH}s}-> {one_line(line.remedy)}")
    return "\n".join([*lines, "", conclusion(diagnosis), "```"])


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Print a diagnosis on a terminal."""
    for section in diagnosis.sections:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True, min_width=WIDTH + 1)
        grid.add_column(overflow="fold")
        for line in section.lines:
            grid.add_row(Text(f"  {line.name}", style="dim"), _value(line))
        console.print()
        console.print(Text(_heading(section), style="bold"))
        console.print(grid)
    word, _, rest = conclusion(diagnosis).partition(":")
    style = "bold green" if diagnosis.healthy else "bold red"
    console.print()
    console.print(Text.assemble((word, style), f":{rest}"))
    console.print(Text("To paste it into an issue: truenorm doctor > report.txt", style="dim"))


def conclusion(diagnosis: Diagnosis) -> str:
    """Return the last line: whether something is wrong, and where the remedy is."""
    count = len(diagnosis.problems)
    if not count:
        return "HEALTHY: nothing is wrong."
    names = ", ".join(line.name for line in diagnosis.problems)
    things = "1 thing is" if count == 1 else f"{count} things are"
    return f"PROBLEM: {things} wrong ({names}); the lines with -> say what to do."


def _heading(section: Section) -> str:
    took = "" if section.seconds is None else f" ({duration(section.seconds)})"
    return section.title + took


def _value(line: Line) -> Text:
    value = one_line(line.value)
    if line.remedy:
        return Text.assemble((value, "bold red"), "\n-> ", one_line(line.remedy))
    return Text(value, style="green" if value.startswith(TESTED) else "")
