"""Terminal pages of the judge: a report, and the comparison of two subjects.

Names and symptoms come from the subject: `plain_text` prints them without markup.
"""

import math
from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from truenorm.tools.rich_tables import plain_text, rich_table
from truenorm.tools.text import counted, duration, number, one_line, printable
from truenorm.verify.equality import Difference, Equality, difference_size
from truenorm.verify.grading.report import Finding, Report
from truenorm.verify.report.wording import (
    LEGEND,
    baseline_changes,
    baseline_counts,
    batch_line,
    beyond_heading,
    beyond_text,
    conclusion,
    grade_notes,
    likely_cause,
    link,
    location,
    max_ulp,
    quantization_lines,
    recipe_lines,
    recipe_notes,
    slope,
    verdict_line,
)

GRADE_STYLES = {
    "correct": "bold green",
    "faithful": "green",
    "stable": "green",
    "conditional": "yellow",
    "unstable": "red",
    "wrong": "bold red",
}
REPRODUCERS = 3
"""The first findings are shown with their reproducers."""
IN_LEADER = ("input", "matters", "try", "reported")
"""What a finding that follows from another does not repeat."""


def _table(columns: str, head: Sequence[str]) -> Table:
    """Return a table whose head of one or two lines stands on its first row."""
    table = rich_table(columns, head)
    for column in table.columns:
        column.vertical = "bottom"
    return table


def _grade(grade: str) -> Text:
    return plain_text(grade, GRADE_STYLES.get(grade, ""))


def print_head(console: Console, headline: str | Text, machine: Mapping[str, str]) -> None:
    """Print the first lines of a page: the headline, and the machine."""
    console.print()
    console.print(headline if isinstance(headline, Text) else plain_text(headline))
    if machine:
        facts = ", ".join(f"{name} {fact}" for name, fact in machine.items())
        console.print(plain_text(facts, "dim"))
    console.print()


def print_outcome(console: Console, text: str, *, passed: bool) -> None:
    """Print a line that begins with the outcome."""
    outcome = ("PASS", "bold green") if passed else ("FAIL", "bold red")
    console.print(Text.assemble(outcome, f": {one_line(text)}"))


def show(report: Report, console: Console) -> None:
    """Print a report."""
    cases = f"{report.level} level, {counted(report.cases, 'case')}"
    seconds = f"{duration(report.seconds)} in its calls"
    facts = f": {report.operation.title}, {cases}, {seconds}"
    headline = Text.assemble(plain_text(report.subject, "bold"), facts, overflow="fold")
    print_head(console, headline, report.machine)
    print_outcome(console, verdict_line(report), passed=report.passed)
    if batch := batch_line(report):
        console.print(plain_text(batch))
    for index, finding in enumerate(report.findings, 1):
        if not finding.known:
            console.print()
            _print_finding(console, index, finding)
    if report.baseline is not None:
        console.print()
        console.print(_baseline(report))
    console.print()
    console.print(_grades(report, console))
    console.print(plain_text(LEGEND, "dim"))
    for line in grade_notes(report):
        console.print(plain_text(line, "dim"))
    console.print()
    if heading := beyond_heading(report):
        console.print(plain_text(heading))
        table = rich_table("llw")
        for each in report.beyond:
            table.add_row(
                plain_text(each.dtype),
                plain_text(" ".join(each.outputs)),
                plain_text(beyond_text(each), "yellow"),
            )
        console.print(table)
        console.print()
    if recipes := recipe_lines(report):
        table = rich_table("llw")
        for dtype, (name, shares) in recipes.items():
            recipe = plain_text(f"{name}: {shares}")
            table.add_row(plain_text("recipe", "dim"), plain_text(dtype), recipe)
            for note in recipe_notes(report, dtype):
                table.add_row("", "", plain_text(f"note: {note}", "yellow"))
        console.print(table)
        console.print()
    if quantization := quantization_lines(report):
        table = rich_table("llw")
        for label, dtype, line in quantization:
            table.add_row(plain_text(label, "dim"), plain_text(dtype), plain_text(line))
        console.print(table)
        console.print()
    console.print(_verdicts(report, ticks=not console.options.ascii_only))
    text = conclusion(report)
    if not report.passed:
        first = "Run the reproducer of finding 1, fix it, and run this again"
        if not report.findings:
            first = "Look at the worst cases above, or require less with --require"
        text += f" {first}; --html FILE draws all of it, --json is for programs."
    console.print()
    if batch:
        console.print(plain_text(batch))
    print_outcome(console, text, passed=report.passed)


def _grades(report: Report, console: Console) -> RenderableType:
    """Return the table of grades; two tables if the names of cases make one too wide."""
    place, measures = ["type", "output"], ["grade", "max\nulp", "natural\nunits", "slope"]
    whole = _table("lllrrrl", [*place, *measures, "worst case"])
    grades = _table("lllrrr", [*place, *measures])
    worst = _table("llw", [*place, "worst case"])
    before = ""
    for grade in report.grades:
        here = [
            plain_text("" if grade.dtype == before else grade.dtype),
            plain_text(grade.output),
        ]
        numbers = [max_ulp(grade), number(grade.max_natural), slope(grade)]
        measured: list[str | Text] = [_grade(grade.grade), *numbers]
        case = plain_text(grade.worst_case)
        whole.add_row(*here, *measured, case)
        grades.add_row(*here, *measured)
        worst.add_row(*here, case)
        before = grade.dtype
    unlimited = console.options.update(max_width=2**16)
    if console.measure(whole, options=unlimited).minimum <= console.width:
        return whole
    return Group(grades, "", worst)


def _verdicts(report: Report, *, ticks: bool) -> Table:
    signs = {
        "pass": Text("✓" if ticks else "+", style="green"),
        "fail": Text("✗" if ticks else "x", style="bold red"),
        "warn": Text("!", style="yellow"),
    }
    table = rich_table("lllw")
    for name, outcome in report.verdicts.items():
        style = "" if outcome in signs else "dim"
        table.add_row(
            signs.get(outcome, Text("-", style="dim")),
            plain_text(outcome if outcome in signs else "not judged", style),
            plain_text(name, style),
            plain_text(report.explained(name), "dim"),
        )
    return table


def _baseline(report: Report) -> Group:
    """Return the known findings, the changes since the baseline, and their numbers."""
    table = rich_table("lw")
    for finding in report.findings:
        if finding.known:
            reason = f" ({finding.reason})" if finding.reason else ""
            text = f"{location(finding)}: {finding.symptom}{reason}"
            table.add_row(Text("known", style="dim"), plain_text(text))
    for line in baseline_changes(report):
        label, _, text = line.partition(": ")
        table.add_row(Text(label, style="green"), plain_text(text))
    return Group(table, plain_text(baseline_counts(report), "bold"))


def _print_finding(console: Console, index: int, finding: Finding) -> None:
    """Print a finding; the first ones with their reproducers.

    One that follows from another is short: its cause is that of the other.
    """
    more = f" (and {finding.also_in} more)" if finding.also_in else ""
    table = rich_table("rw")
    style = "bold yellow" if finding.warning else "bold red"
    table.add_row(Text(str(index), style=style), plain_text(finding.symptom, "bold"))
    for label, text in (
        ("in", location(finding)),
        ("case", finding.case + more),
        ("new", finding.new),
        ("reason", finding.reason),
        ("input", finding.why),
        ("likely cause", likely_cause(finding)),
        ("matters", finding.matters),
        ("try", finding.to_try),
        ("reported", "\n".join(f"{each} {link(each)}" for each in finding.sources)),
    ):
        if text and not (finding.follows and label in IN_LEADER):
            lines = Text("\n").join(map(plain_text, text.splitlines()))
            table.add_row(Text(label, style="dim"), lines)
    console.print(table)
    if finding.reproducer and index <= REPRODUCERS and not finding.follows:
        console.print(Rule(style="dim", characters="-"))
        # Neither indented nor wrapped, so that it can be copied and run.
        for line in finding.reproducer.strip("\n").splitlines():
            console.print(Text(printable(line)), soft_wrap=True)
        console.print(Rule(style="dim", characters="-"))


def show_equality(equality: Equality, console: Console) -> None:
    """Print where the bits of two subjects differ."""
    cases = f"{equality.level} level, {counted(equality.cases, 'case')}"
    subjects = f"{equality.first} (first) and {equality.second} (second)"
    headline = f"{subjects}: {equality.operation.title}, {cases}"
    print_head(console, headline, equality.machine)
    table = _table(
        "llrrrrrr",
        [
            *("type", "output", "cases\ndiffer", "elements\ndiffer", "ulp\napart"),
            *("first\nnearer", "second\nnearer", "errors\nin ulp"),
        ],
    )
    for each in equality.summaries:
        table.add_row(
            plain_text(each.dtype),
            plain_text(each.output),
            f"{each.cases_that_differ}/{each.cases}",
            f"{each.elements}/{each.total}",
            number(each.ulp),
            str(each.first_nearer),
            str(each.second_nearer),
            f"{number(each.first_ulp)}, {number(each.second_ulp)}" if each.judged else "-",
        )
    console.print(table)
    worst = worst_differences(equality)
    for difference in worst:
        console.print()
        console.print(plain_text(f"{difference.case}: {difference.why}", "bold"))
        console.print(plain_text(describe_difference(difference)))
    if more := len(equality.differences) - len(worst):
        console.print()
        console.print(plain_text(f"and {counted(more, 'difference')} more: --json has all", "dim"))
    console.print()
    print_outcome(console, equality_conclusion(equality), passed=equality.passed)


def worst_differences(equality: Equality) -> list[Difference]:
    """Return the worst difference of each type and output."""
    worst: dict[tuple[str, str], Difference] = {}
    for each in equality.differences:
        place = (each.dtype, each.output)
        worst[place] = max(worst.get(place, each), each, key=difference_size)
    return list(worst.values())


def describe_difference(difference: Difference) -> str:
    """Return where two results differ, by how much, and which is nearer."""
    if difference.words:
        return difference.words
    digits = 17 if difference.dtype == "float64" else 9
    first, second = f"{difference.first:.{digits}g}", f"{difference.second:.{digits}g}"
    at = f"{difference.output}{list(difference.at)}"
    text = f"{at} is {first} from the first, {second} from the second"
    if math.isfinite(difference.ulp):
        text += f", {number(difference.ulp)} ulp apart"
    if difference.exact is not None:
        text += f"; the exact answer is {difference.exact:.{digits}g}"
    text += f". {difference.elements} of {difference.total} elements differ"
    if not difference.judged:
        return text + "; the case is too large to tell which is nearer."
    if difference.judged < difference.elements:
        text += f", of which {difference.judged} were compared with exact answers"
    nearer = (difference.first_nearer, difference.second_nearer)
    return f"{text}: the first is nearer in {nearer[0]}, the second in {nearer[1]}."


def equality_conclusion(equality: Equality) -> str:
    """Return the result of a comparison in one or two sentences."""
    if not equality.summaries and not equality.differences:
        return "Nothing could be compared: neither returned in any case."
    rest = ""
    if equality.failed:
        rest += f" Neither returned in {counted(equality.failed, 'case')}."
    if equality.not_run:
        rest += f" {counted(equality.not_run, 'case')} did not run: one crashed or hung too often."
    if equality.left_out:
        rest += f" {counted(equality.left_out, 'case')} outside the domain of one were left out."
    if not equality.differences:
        return f"All bits are equal.{rest}"
    cases = len({each.case for each in equality.differences})
    places: dict[str, dict[str, None]] = {}
    for each in equality.differences:
        places.setdefault(each.dtype, {})[each.output or "calls"] = None
    where = ", ".join(f"{' '.join(outputs)} in {dtype}" for dtype, outputs in places.items())
    return f"Bits differ in {cases} of {counted(equality.cases, 'case')}: {where}.{rest}"
