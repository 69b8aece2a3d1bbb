"""A diagnosis for people: plain text that an issue keeps as it is, or colours on a terminal."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from truenorm.doctor.report import Diagnosis
from truenorm.tools.text import duration, one_line

__all__ = ["conclusion", "show", "to_text"]

WIDTH = 20
"""Of the column of names."""
TESTED = ("correct to the bit", "correct:", "PASS")
"""How the value of a line begins that has passed a test."""


def to_text(diagnosis: Diagnosis) -> str:
    """Return everything, ready to be pasted."""
    title = f"{_command(diagnosis)}, {diagnosis.date}"
    return "\n".join(["```text", title, *(text for text, _ in _lines(diagnosis)), "```"])


def _command(diagnosis: Diagnosis) -> str:
    options = {" --full": diagnosis.full, " --gpu": diagnosis.gpu}
    return "truenorm doctor" + "".join(name for name, given in options.items() if given)


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Print a diagnosis on a terminal."""
    for text, style in _lines(diagnosis):
        console.print(Text(text, style=style), soft_wrap=True)
    console.print(
        Text(f"To paste it into an issue: {_command(diagnosis)} > report.txt", style="dim")
    )


def _lines(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """Yield each line and the style that it has on a terminal."""
    for section in diagnosis.sections:
        took = "" if section.seconds is None else f" ({duration(section.seconds)})"
        yield f"\n{section.title}{took}", "bold"
        for line in section.lines:
            value = one_line(line.value)
            good = "green" if value.startswith(TESTED) else ""
            yield f"  {line.name:{WIDTH}s}{value}", "bold red" if line.remedy else good
            if line.remedy:
                yield f"  {'':{WIDTH}s}-> {one_line(line.remedy)}", ""
    yield f"\n{conclusion(diagnosis)}", "bold green" if diagnosis.healthy else "bold red"


def conclusion(diagnosis: Diagnosis) -> str:
    """Return the last line: whether something is wrong, and where the remedy is."""
    count = len(diagnosis.problems)
    if not count:
        return "HEALTHY: nothing is wrong."
    names = ", ".join(line.name for line in diagnosis.problems)
    things = "1 thing is" if count == 1 else f"{count} things are"
    return f"PROBLEM: {things} wrong ({names}); the lines with -> say what to do."
