"""Two subjects on a terminal: a table of results, and where they differ most."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truenorm.tools.text import counted, number, one_line
from truenorm.verify.equal.report import Difference, Equality

__all__ = ["conclusion", "in_words", "show"]

SHOWN = 10
"""So many differences are shown; JSON has all."""


def show(equality: Equality, console: Console) -> None:
    """Print where the bits of two subjects differ."""
    console.print()
    what = f"{equality.operation.title}, {equality.level} level, {counted(equality.cases, 'case')}"
    console.print(_plain(f"{equality.first} (first) and {equality.second} (second): {what}"))
    machine = ", ".join(f"{key} {value}" for key, value in equality.machine.items())
    console.print(_plain(machine, "dim"))
    console.print()
    console.print(_table(equality))
    worst = sorted(equality.differences, key=lambda each: (not each.words, -each.ulp))[:SHOWN]
    for each in worst:
        console.print()
        console.print(_plain(each.case, "bold"))
        console.print(_plain(in_words(each)))
    if len(equality.differences) > len(worst):
        more = len(equality.differences) - len(worst)
        console.print()
        console.print(_plain(f"and {counted(more, 'difference')} more: --json has all", "dim"))
    console.print()
    outcome = ("PASS", "bold green") if equality.passed else ("FAIL", "bold red")
    console.print(Text.assemble(outcome, f"  {one_line(conclusion(equality))}"))


def _plain(text: str, style: str = "") -> Text:
    """Return text without markup: names come from others."""
    return Text(one_line(text), style=style, overflow="fold")


def _table(equality: Equality) -> Table:
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
    said = f"{where}: {number(found.ulp)} ulp apart"
    if found.exact is not None:
        said += f", the exact answer {found.exact:.{digits}g}"
    said += f"; {found.elements} of {found.total} elements differ"
    if not found.judged:
        return said + ", too many to say which is nearer"
    less = "" if found.judged == found.elements else f", of {found.judged} looked at"
    return said + (
        f"{less}: the first is nearer in {found.first_nearer}, the second in {found.second_nearer}"
    )


def conclusion(equality: Equality) -> str:
    """Return what came of it, in one sentence."""
    if not equality.summaries and not equality.differences:
        return "Nothing could be compared: neither returned in any case."
    rest = ""
    if equality.not_compared:
        rest += f" {counted(equality.not_compared, 'case')} could not be compared."
    if equality.left_out:
        rest += f" {counted(equality.left_out, 'case')} beyond the domain of one were left out."
    if equality.passed:
        return f"All bits are equal.{rest}"
    cases = len({each.case for each in equality.differences})
    places = dict.fromkeys((each.dtype, each.output) for each in equality.differences)
    which = ", ".join(" in ".join(filter(None, (out, dtype))) for dtype, out in places)
    return f"Bits differ in {cases} of {counted(equality.cases, 'case')}: {which}.{rest}"
