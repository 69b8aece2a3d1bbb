"""An audit on a terminal: a table of wrong kernels, and what would have caught the others."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truenorm.tools.text import counted, duration, number, one_line
from truenorm.verify.audit.running import Audit, Outcome

__all__ = ["conclusion", "difference", "show"]

USE = """\
In a test, tv.check(subject, case) judges a kernel on such an input, and
tv.bound(...).assert_close(y) holds it to a tolerance on inputs of your own."""


def show(audit: Audit, console: Console) -> None:
    """Print which wrong kernels the tests let pass."""
    console.print()
    console.print(_plain(_headline(audit)))
    console.print(
        _plain(", ".join(f"{key} {value}" for key, value in audit.machine.items()), "dim")
    )
    console.print()
    console.print(_table(audit))
    for place, each in enumerate(audit.let_pass, 1):
        console.print()
        console.print(_shown(place, each))
    if audit.let_pass:
        console.print()
        console.print(Text(USE, style="dim"))
    if audit.left_out:
        console.print()
        console.print(_left_out(audit))
    console.print()
    outcome = ("PASS", "bold green") if audit.passed else ("FAIL", "bold red")
    console.print(Text.assemble(outcome, f"  {one_line(conclusion(audit))}"))


def _plain(text: str, style: str = "") -> Text:
    """Return text without markup: names come from others."""
    return Text(one_line(text), style=style, overflow="fold")


def _headline(audit: Audit) -> str:
    calls = counted(audit.calls, "call")
    if audit.gradients:
        calls += f" and {audit.gradients} of its backward pass"
    types = ", ".join(audit.dtypes)
    return (
        f"{audit.replaced} in {' '.join(audit.tests)}: {audit.operation.title}, {calls} in "
        f"{types}, {duration(audit.seconds)} a run"
    )


def difference(outcome: Outcome) -> str:
    """Return by how much a kernel differed from the right one in the calls of the tests."""
    if not outcome.output:
        return "none"
    return f"{outcome.output} by {number(outcome.difference)} of {number(outcome.size)}"


def _table(audit: Audit) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("wrong kernel", no_wrap=True)
    table.add_column("the tests", no_wrap=True)
    table.add_column("difference they saw", no_wrap=True)
    table.add_column("first that failed", overflow="fold")
    for each in audit.outcomes:
        verdict = Text("caught", "green") if each.caught else Text("let it pass", "bold red")
        table.add_row(_plain(each.name), verdict, difference(each), _plain(_test(each.by)))
    return table


def _test(name: str) -> str:
    """Return a test without its file."""
    return name.partition("::")[2] or name


def _shown(place: int, outcome: Outcome) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(str(place), style="bold red"), _plain(f"{outcome.name}: {outcome.words}"))
    witness = outcome.witness
    if witness is not None:
        rows = (("shown by", witness.made), ("input", witness.why), ("there", witness.symptom))
        for label, text in rows:
            grid.add_row(Text(label, style="dim"), _plain(text))
    return grid


def _left_out(audit: Audit) -> Table:
    """Return what was not tried, by its reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in audit.left_out.items():
        reasons.setdefault(reason, []).append(name)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for reason, names in reasons.items():
        grid.add_row(Text("left out", style="dim"), _plain(f"{', '.join(names)}: {reason}"))
    return grid


def conclusion(audit: Audit) -> str:
    """Return what came of it, in one sentence."""
    count = counted(len(audit.outcomes), "wrong kernel")
    if audit.passed:
        return f"The tests catch all of {count}."
    return f"The tests let {len(audit.let_pass)} of {count} pass."
