"""A campaign on a terminal: a table of numbers, and the findings if there are any."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truenorm.tools.text import counted, duration, number, one_line
from truenorm.verify.campaigns.summary import Campaign
from truenorm.verify.pages.terminal import STYLES, show_finding

__all__ = ["conclusion", "show"]

COLUMNS = ("type", "output", "grade", "cases", "elements", "wrong", "max\nulp")


def show(campaign: Campaign, console: Console) -> None:
    """Print what came of a campaign."""
    console.print()
    what = f"{campaign.operation.title}, {campaign.level} level, seeds from {campaign.seed} on"
    console.print(_plain(f"{campaign.subject}: {what}"))
    machine = ", ".join(f"{key} {value}" for key, value in campaign.machine.items())
    console.print(_plain(machine, "dim"))
    console.print()
    console.print(_table(campaign))
    console.print()
    console.print(_plain(_numbers(campaign)))
    for place, finding in enumerate(campaign.findings, 1):
        console.print()
        show_finding(place, finding, console)
    console.print()
    outcome = ("PASS", "bold green") if campaign.passed else ("FAIL", "bold red")
    console.print(Text.assemble(outcome, f"  {one_line(conclusion(campaign))}"))


def _plain(text: str, style: str = "") -> Text:
    """Return text without markup: names come from others."""
    return Text(one_line(text), style=style, overflow="fold")


def _table(campaign: Campaign) -> Table:
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


def conclusion(campaign: Campaign) -> str:
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
