"""A diagnosis on a terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truenorm.doctor.report import Diagnosis, Line, Section
from truenorm.doctor.text import WIDTH, conclusion, heading
from truenorm.tools.text import one_line

__all__ = ["show"]

BAD, GOOD = "bold red", "green"
TESTED = ("correct to the bit", "correct:", "PASS")
"""How the value of a line begins that has passed a test."""


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Print a diagnosis."""
    for section in diagnosis.sections:
        console.print()
        console.print(Text(heading(section), style="bold"))
        console.print(_grid(section))
    console.print()
    style = "bold green" if diagnosis.healthy else BAD
    word, _, rest = conclusion(diagnosis).partition(":")
    console.print(Text.assemble((word, style), f":{rest}"))
    console.print(Text("To paste it into an issue: truenorm doctor > report.txt", style="dim"))


def _grid(section: Section) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, min_width=WIDTH + 1)
    grid.add_column(overflow="fold")
    for line in section.lines:
        grid.add_row(Text(f"  {line.name}", style="dim"), _value(line))
    return grid


def _value(line: Line) -> Text:
    value = one_line(line.value)
    if line.remedy:
        return Text.assemble((value, BAD), "\n-> ", one_line(line.remedy))
    return Text(value, style=GOOD if value.startswith(TESTED) else "")
