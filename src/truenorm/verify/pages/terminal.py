"""A report on a terminal: a table of grades, the verdicts, the findings, and what to do next.

Names and symptoms come from others. They are put into `Text`, which takes no markup from them.
"""

from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from truenorm.tools.text import counted, duration, number, one_line, printable
from truenorm.verify.grading.report import Finding, Report
from truenorm.verify.pages.advice import advice
from truenorm.verify.pages.sources import link
from truenorm.verify.pages.wording import (
    LEGEND,
    about,
    cause,
    conclusion,
    counts,
    max_ulp,
    place,
    recipe_lines,
    slope,
    vanished_lines,
)

__all__ = ["STYLES", "show", "show_finding"]

STYLES = {
    "correct": "bold green",
    "faithful": "green",
    "stable": "green",
    "conditional": "yellow",
    "unstable": "red",
    "wrong": "bold red",
}
PLACE = ("type", "output")
MEASURES = ("grade", "max\nulp", "natural\nunits", "slope")
WORST = ("worst case",)
"""The columns of the grades: which one, how good it is, and the case that shows it."""
REPRODUCERS = 3
"""Of so many findings the reproducer is shown; the first are the ones to look at first."""


def show(report: Report, console: Console) -> None:
    """Print a report."""
    console.print()
    console.print(_headline(report))
    console.print(_grades(report, console))
    console.print(_plain(LEGEND, "dim"))
    for line in about(report):
        console.print(_plain(line, "yellow"))
    console.print()
    if recipes := recipe_lines(report):
        console.print(_recipes(recipes))
        console.print()
    console.print(_verdicts(report, ticks=not console.options.ascii_only))
    new = [finding for finding in report.findings if not finding.known]
    for number_of_it, finding in enumerate(new, 1):
        console.print()
        show_finding(number_of_it, finding, console)
    if report.baseline is not None:
        console.print()
        console.print(_baseline(report))
    console.print()
    console.print(_last_line(report))


def _plain(text: str, style: str = "") -> Text:
    return Text(one_line(text), style=style, overflow="fold")


def _headline(report: Report) -> Text:
    level = f"{report.level} level, {counted(report.cases, 'case')}"
    what = f"{report.operation.title}, {level}, {duration(report.seconds)} in its calls"
    machine = ", ".join(f"{key} {value}" for key, value in report.machine.items())
    text = Text.assemble(_plain(report.subject, "bold"), f": {what}\n", overflow="fold")
    return text.append(_plain(machine, "dim")).append("\n") if machine else text


def _grades(report: Report, console: Console) -> RenderableType:
    """Return a table; where it would be too wide for the names of its cases, two."""
    whole = _table(report, [*PLACE, *MEASURES, *WORST])
    boundless = console.options.update(max_width=2**16)
    if console.measure(whole, options=boundless).minimum <= console.width:
        return whole
    return Group(_table(report, [*PLACE, *MEASURES]), "", _table(report, [*PLACE, *WORST]))


def _table(report: Report, columns: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        right = name in ("max\nulp", "natural\nunits", "slope")
        # A name of a case is folded only where it is wider than the terminal alone.
        wide = name in WORST and MEASURES[0] not in columns
        table.add_column(
            name,
            justify="right" if right else "left",
            vertical="top" if right else "bottom",
            no_wrap=not wide,
            overflow="fold",
        )
    before = ""
    for grade in report.grades:
        cells: dict[str, str | Text] = {
            "type": _plain(grade.dtype if grade.dtype != before else ""),
            "output": _plain(grade.output),
            "grade": _plain(grade.grade, STYLES.get(grade.grade, "")),
            "max\nulp": max_ulp(grade),
            "natural\nunits": number(grade.max_natural),
            "slope": slope(grade),
            "worst case": _plain(grade.worst_case),
        }
        table.add_row(*(cells[name] for name in columns))
        before = grade.dtype
    return table


def _recipes(lines: Mapping[str, tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for dtype, (name, shares) in lines.items():
        table.add_row(_plain("recipe", "dim"), _plain(dtype), _plain(f"{name}: {shares}"))
    return table


def _verdicts(report: Report, *, ticks: bool) -> Table:
    signs = {
        "pass": Text("✓" if ticks else "+", style="green"),
        "fail": Text("✗" if ticks else "x", style="bold red"),
    }
    table = Table.grid(padding=(0, 2))
    for name, outcome in report.verdicts.items():
        known = outcome in signs
        table.add_row(
            signs.get(outcome, Text("-", style="dim")),
            _plain(outcome if known else "not judged", "" if known else "dim"),
            _plain(name, "" if known else "dim"),
            _plain(report.explained(name), "dim"),
        )
    return table


def _baseline(report: Report) -> Group:
    """Return what is known, each in a line or two, what vanished, and how many there are."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in report.findings:
        if finding.known:
            why = f" ({finding.reason})" if finding.reason else ""
            text = f"{place(finding)}: {finding.symptom}{why}"
            grid.add_row(Text("known", style="dim"), _plain(text))
    for line in vanished_lines(report):
        label, _, text = line.partition(": ")
        grid.add_row(Text(label, style="green"), _plain(text))
    return Group(grid, _plain(counts(report), "bold"))


def show_finding(number_of_it: int, finding: Finding, console: Console) -> None:
    """Print a finding, of the first ones with the reproducer."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(str(number_of_it), style="bold red"), _plain(finding.symptom, "bold"))
    more = f" (and {finding.also_in} more)" if finding.also_in else ""
    said = advice(finding)
    rows = [
        ("in", place(finding)),
        ("case", finding.case + more),
        ("new", finding.new),
        ("reason", finding.reason),
        ("input", finding.why),
        ("cause", cause(finding)),
        ("matters", said.matters),
        ("try", said.to_try),
        ("seen", "\n".join(f"{each} {link(each)}" for each in finding.sources)),
    ]
    for label, text in rows:
        if text:
            lines = Text("\n").join(map(_plain, text.splitlines()))
            grid.add_row(Text(label, style="dim"), lines)
    console.print(grid)
    if finding.reproducer and number_of_it <= REPRODUCERS:
        console.print(Rule(style="dim", characters="-"))
        # Neither indented nor wrapped, so that it can be copied and run.
        for line in finding.reproducer.strip("\n").splitlines():
            console.print(Text(printable(line)), soft_wrap=True)
        console.print(Rule(style="dim", characters="-"))


def _last_line(report: Report) -> Text:
    if report.passed:
        return Text.assemble(("PASS", "bold green"), f"  {one_line(conclusion(report))}")
    first = "Run the reproducer of finding 1, mend, and run this again"
    if not report.findings:
        first = "Look at the worst cases above, or ask for less with --require"
    rest = "; --html FILE draws all of it, --json is for programs."
    text = Text.assemble(("FAIL", "bold red"), f"  {one_line(conclusion(report))} ")
    return text.append(first + rest)
