"""Two subjects on a terminal: a table of results, and where they differ most."""

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truenorm.tools.text import counted, number, one_line
from truenorm.verify.equal.report import Difference, Equality

__all__ = ["conclusion", "in_words", "show", "worst"]


def show(equality: Equality, console: Console) -> None:
    """Print where the bits of two subjects differ."""
    console.print()
    what = f"{equality.operation.title}, {equality.level} level, {counted(equality.cases, 'case')}"
    console.print(_plain(f"{equality.first} (first) and {equality.second} (second): {what}"))
    machine = ", ".join(f"{key} {value}" for key, value in equality.machine.items())
    console.print(_plain(machine, "dim"))
    console.print()
    console.print(_table(equality))
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
    console.print(Text.assemble(outcome, f"  {one_line(conclusion(equality))}"))


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
    apart = f", {number(found.ulp)} ulp apart" if math.isfinite(found.ulp) else ""
    exact = "" if found.exact is None else f"; the exact answer is {found.exact:.{digits}g}"
    said = f"{where}{apart}{exact}. {found.elements} of {found.total} elements differ"
    if not found.judged:
        return said + "; of so large a case it is not told which is nearer."
    less = "" if found.judged == found.elements else f", of {found.judged} looked at"
    first, second = found.first_nearer, found.second_nearer
    return f"{said}{less}: the first is nearer in {first}, the second in {second}."


def conclusion(equality: Equality) -> str:
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
