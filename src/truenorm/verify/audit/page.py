"""Print an audit on a terminal: a table of wrong kernels, and inputs that expose them."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truenorm.tools.rich_tables import plain_text, rich_table
from truenorm.tools.text import counted, duration, number, one_line
from truenorm.verify.audit.running import Audit, Outcome

USE = """\
In a test, tv.check(subject, case) judges a kernel on such an input, and
tv.bound(...).assert_close(y) compares it within a tolerance on your own inputs."""


def show(audit: Audit, console: Console) -> None:
    """Print which wrong kernels the tests let pass."""
    machine = ", ".join(f"{key} {value}" for key, value in audit.machine.items())
    blocks: list[Table | Text] = [_table(audit)]
    blocks += [_details(place, each) for place, each in enumerate(audit.let_pass, 1)]
    if audit.let_pass:
        blocks.append(Text(USE, style="dim"))
    if audit.left_out:
        blocks.append(_left_out(audit))
    outcome = ("PASS", "bold green") if audit.passed else ("FAIL", "bold red")
    blocks.append(Text.assemble(outcome, f"  {one_line(conclusion(audit))}"))
    console.print()
    console.print(plain_text(_headline(audit)))
    console.print(plain_text(machine, "dim"))
    for block in blocks:
        console.print()
        console.print(block)


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
    """Return the difference of a kernel from the right one in the calls of the tests."""
    if not outcome.output:
        return "none"
    return f"{outcome.output} by {number(outcome.difference)} of {number(outcome.size)}"


def _table(audit: Audit) -> Table:
    head = ["wrong kernel", "the tests", "difference they saw", "first that failed"]
    table = rich_table("lllw", head)
    for each in audit.outcomes:
        verdict = Text("caught", "green") if each.caught else Text("let it pass", "bold red")
        test = each.by.partition("::")[2] or each.by
        table.add_row(plain_text(each.name), verdict, difference(each), plain_text(test))
    return table


def _details(place: int, outcome: Outcome) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    description = plain_text(f"{outcome.name}: {outcome.words}")
    grid.add_row(Text(str(place), style="bold red"), description)
    witness = outcome.witness
    if witness is not None:
        rows = (("shown by", witness.made), ("input", witness.why), ("there", witness.symptom))
        for label, text in rows:
            grid.add_row(Text(label, style="dim"), plain_text(text))
    return grid


def _left_out(audit: Audit) -> Table:
    """Return the kernels that were not tried, by reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in audit.left_out.items():
        reasons.setdefault(reason, []).append(name)
    grid = rich_table("lw")
    for reason, names in reasons.items():
        grid.add_row(Text("left out", style="dim"), plain_text(f"{', '.join(names)}: {reason}"))
    return grid


def conclusion(audit: Audit) -> str:
    """Return the result of an audit in one sentence."""
    count = counted(len(audit.outcomes), "wrong kernel")
    if audit.passed:
        return f"The tests catch all of {count}."
    return f"The tests let {len(audit.let_pass)} of {count} pass."
