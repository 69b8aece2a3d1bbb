"""A report on a terminal: a table of grades, the verdicts, the findings, and what to do next.

Names and symptoms come from others. They are put into `Text`, which takes no markup from them.
"""

import math
from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from truenorm.tools.text import counted, duration, number, one_line, printable
from truenorm.verify.campaigns import Campaign
from truenorm.verify.equality import Difference, Equality
from truenorm.verify.grading.report import Finding, Report
from truenorm.verify.report.wording import (
    LEGEND,
    about,
    advice,
    cause,
    conclusion,
    counts,
    link,
    max_ulp,
    place,
    recipe_lines,
    slope,
    vanished_lines,
)

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


COLUMNS = ("type", "output", "grade", "cases", "elements", "wrong", "max\nulp")


def show_campaign(campaign: Campaign, console: Console) -> None:
    """Print what came of a campaign."""
    console.print()
    what = f"{campaign.operation.title}, {campaign.level} level, seeds from {campaign.seed} on"
    console.print(_plain(f"{campaign.subject}: {what}"))
    machine = ", ".join(f"{key} {value}" for key, value in campaign.machine.items())
    console.print(_plain(machine, "dim"))
    console.print()
    console.print(_campaign_table(campaign))
    console.print()
    console.print(_plain(_numbers(campaign)))
    for number_of_it, finding in enumerate(campaign.findings, 1):
        console.print()
        show_finding(number_of_it, finding, console)
    console.print()
    outcome = ("PASS", "bold green") if campaign.passed else ("FAIL", "bold red")
    console.print(Text.assemble(outcome, f"  {one_line(campaign_conclusion(campaign))}"))


def _campaign_table(campaign: Campaign) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in COLUMNS[:3] else "right", no_wrap=True)
    for each in campaign.results:
        table.add_row(
            _plain(each.dtype),
            _plain(each.output),
            _plain(each.grade, STYLES.get(each.grade, "")),
            f"{each.cases:,}",
            f"{each.elements:,}",
            f"{each.wrong:,}",
            number(each.max_ulp),
        )
    return table


def _numbers(campaign: Campaign) -> str:
    """Return how much was judged, and what it took."""
    said = f"{counted(campaign.cases, 'case')}: {campaign.elements:,} elements, "
    said += f"{campaign.wrong:,} of them wrong, by {campaign.answers:,} exact answers"
    if not campaign.elements:
        return said
    pace = duration(1e6 * campaign.worked / campaign.elements)
    took = f"{duration(campaign.seconds)}, {duration(campaign.called)} in its calls"
    return f"{said}; {took}; judging takes {pace} of a core for a million elements"


def campaign_conclusion(campaign: Campaign) -> str:
    """Return what came of it, in one sentence or two."""
    rest = ""
    if campaign.left_out:
        rest += f" {counted(campaign.left_out, 'case')} beyond its domain were left out."
    if campaign.not_run:
        rest += f" {counted(campaign.not_run, 'case')} did not run: it crashed or hung too often."
    if campaign.failed:
        cases = f"{campaign.failed:,} of {counted(campaign.cases, 'case')}"
        return f"Something is wrong in {cases}.{rest}"
    if not campaign.results:
        return f"Nothing could be judged.{rest}"
    return f"Every element is {campaign.require}, and nothing else is wrong.{rest}"


def show_equality(equality: Equality, console: Console) -> None:
    """Print where the bits of two subjects differ."""
    console.print()
    what = f"{equality.operation.title}, {equality.level} level, {counted(equality.cases, 'case')}"
    console.print(_plain(f"{equality.first} (first) and {equality.second} (second): {what}"))
    machine = ", ".join(f"{key} {value}" for key, value in equality.machine.items())
    console.print(_plain(machine, "dim"))
    console.print()
    console.print(_equality_table(equality))
    shown = worst(equality)
    for each in shown:
        console.print()
        console.print(_plain(f"{each.case}: {each.why}", "bold"))
        console.print(_plain(in_words(each)))
    if len(equality.differences) > len(shown):
        more = len(equality.differences) - len(shown)
        console.print()
        console.print(_plain(f"and {counted(more, 'difference')} more: --json has all", "dim"))
    console.print()
    outcome = ("PASS", "bold green") if equality.passed else ("FAIL", "bold red")
    console.print(Text.assemble(outcome, f"  {one_line(equality_conclusion(equality))}"))


def worst(equality: Equality) -> list[Difference]:
    """Return one difference for each type and output: a call that fails, or the largest."""
    found: dict[tuple[str, str], Difference] = {}
    for each in equality.differences:
        place = (each.dtype, each.output)
        if place not in found or _size(each) > _size(found[place]):
            found[place] = each
    return list(found.values())


def _size(found: Difference) -> tuple[bool, float]:
    return bool(found.words), found.ulp


def _equality_table(equality: Equality) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    columns = ("type", "output", "cases\ndiffer", "elements\ndiffer", "ulp\napart")
    for name in (*columns, "first\nnearer", "second\nnearer", "errors\nin ulp"):
        table.add_column(name, justify="left" if name in columns[:2] else "right", no_wrap=True)
    for each in equality.summaries:
        table.add_row(
            _plain(each.dtype),
            _plain(each.output),
            f"{each.cases_that_differ}/{each.cases}",
            f"{each.elements}/{each.total}",
            number(each.ulp),
            str(each.first_nearer),
            str(each.second_nearer),
            f"{number(each.first_ulp)}, {number(each.second_ulp)}" if each.judged else "-",
        )
    return table


def in_words(found: Difference) -> str:
    """Return where two results differ, by how much, and which is nearer."""
    if found.words:
        return found.words
    digits = 17 if found.dtype == "float64" else 9
    one, other = f"{found.first:.{digits}g}", f"{found.second:.{digits}g}"
    where = f"{found.output}{list(found.at)} is {one} from the first, {other} from the second"
    apart = f", {number(found.ulp)} ulp apart" if math.isfinite(found.ulp) else ""
    exact = "" if found.exact is None else f"; the exact answer is {found.exact:.{digits}g}"
    said = f"{where}{apart}{exact}. {found.elements} of {found.total} elements differ"
    if not found.judged:
        return said + "; of so large a case it is not told which is nearer."
    less = "" if found.judged == found.elements else f", of {found.judged} looked at"
    first, second = found.first_nearer, found.second_nearer
    return f"{said}{less}: the first is nearer in {first}, the second in {second}."


def equality_conclusion(equality: Equality) -> str:
    """Return what came of it, in one sentence."""
    if not equality.summaries and not equality.differences:
        return "Nothing could be compared: neither returned in any case."
    rest = ""
    if equality.failed:
        rest += f" Neither returned in {counted(equality.failed, 'case')}."
    if equality.not_run:
        rest += f" {counted(equality.not_run, 'case')} did not run: one crashed or hung too often."
    if equality.left_out:
        rest += f" {counted(equality.left_out, 'case')} beyond the domain of one were left out."
    if not equality.differences:
        return f"All bits are equal.{rest}"
    cases = len({each.case for each in equality.differences})
    places: dict[str, dict[str, None]] = {}
    for each in equality.differences:
        places.setdefault(each.dtype, {})[each.output or "calls"] = None
    which = ", ".join(f"{' '.join(outputs)} in {dtype}" for dtype, outputs in places.items())
    return f"Bits differ in {cases} of {counted(equality.cases, 'case')}: {which}.{rest}"
