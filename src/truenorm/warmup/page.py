"""A report on a terminal: a line for each pass, and where everything is kept.

The norm is named where there are several.
"""

from rich.console import Console
from rich.text import Text

from truenorm.tools.terminal import number_table
from truenorm.tools.text import counted, duration, one_line, without_home
from truenorm.warmup.report import Report

__all__ = ["conclusion", "show"]

HEAD = ("norm", "type", "mode", "pass", "compiled", "loaded", "time")


def show(report: Report, console: Console) -> None:
    """Print a report."""
    first = len({step.operation for step in report.steps}) < 2  # of the names that tell apart
    table = number_table(HEAD[first:], words=4 - first)
    for step in report.steps:
        names = (step.operation, step.dtype, step.rounding, step.direction)[first:]
        table.add_row(*names, str(step.compiled), str(step.loaded), duration(step.seconds))
    console.print(table)
    console.print()
    lines = [one_line(line) for line in (conclusion(report), *report.notes)]
    console.print(Text("\n".join(lines)), soft_wrap=True)


def conclusion(report: Report) -> str:
    """Return what was done in all, and what is left of it."""
    done = "Nothing had to be compiled"
    if report.compiled:
        done = f"{counted(report.compiled, 'function')} compiled"
    done += f", in {duration(report.seconds)}."
    if report.folder is None:
        return (
            f"{done} Nothing can be kept, and every process compiles again: "
            f"{without_home(report.why_not)}; truenorm doctor says what to do."
        )
    kept = counted(report.functions, "function")
    return f"{done} Kept for the next process: {without_home(str(report.folder))}, {kept}."
