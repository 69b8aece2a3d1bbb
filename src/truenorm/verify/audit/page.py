"""Print an audit on a terminal: a table of wrong kernels, and inputs that expose them."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truenorm.tools.rich_tables import plain_text, rich_table
from truenorm.tools.text import counted, duration, number
from truenorm.verify.audit.running import Audit, Outcome
from truenorm.verify.report.terminal import print_head, print_outcome

USE = """\
In a test, tv.check(subject, case) judges a kernel on such an input, and
tv.bound(...).assert_close(y) compares it within a tolerance on your own inputs."""


def show(audit: Audit, console: Console) -> None:
    """Print which wrong kernels the tests let pass."""
    print_head(console, _headline(audit), audit.machine)
    console.print(_table(audit))
    details: list[Table | Text] = [
        _details(place, each) for place, each in enumerate(audit.let_pass, 1)
    ]
    if audit.let_pass:
        details.append(Text(USE, style="dim"))
    if audit.left_out:
        details.append(_left_out(audit))
    for each in details:
        console.print()
        console.print(each)
    console.print()
    print_outcome(console, conclusion(audit), passed=audit.passed)


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
    table = rich_table("rw")
    description = plain_text(f"{outcome.name}: {outcome.words}")
    table.add_row(Text(str(place), style="bold red"), description)
    if witness := outcome.witness:
        rows = (("shown by", witness.made), ("input", witness.why), ("there", witness.symptom))
        for label, text in rows:
            table.add_row(Text(label, style="dim"), plain_text(text))
    return table


def _left_out(audit: Audit) -> Table:
    reasons: dict[str, list[str]] = {}
    for name, reason in audit.left_out.items():
        reasons.setdefault(reason, []).append(name)
    table = rich_table("lw")
    for reason, names in reasons.items():
        table.add_row(Text("left out", style="dim"), plain_text(f"{', '.join(names)}: {reason}"))
    return table


def conclusion(audit: Audit) -> str:
    """Return the result of an audit in one sentence."""
    count = counted(len(audit.outcomes), "wrong kernel")
    if audit.passed:
        return f"The tests catch all of {count}."
    return f"The tests let {len(audit.let_pass)} of {count} pass."
