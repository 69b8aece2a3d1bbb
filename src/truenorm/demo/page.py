"""A demonstration on a terminal: how many digits are left, and what goes wrong on named rows."""

import math
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from truenorm.demo.algorithms import ALGORITHMS, OURS
from truenorm.demo.errors import OUTPUTS
from truenorm.demo.report import NamedRow, Report, Sweep
from truenorm.tools.terminal import number_table
from truenorm.tools.text import number

__all__ = ["show", "show_at", "show_digits", "show_row"]

COLUMNS = 8
"""More offsets do not fit beside each other."""
MIDDLE = {"float32": 1e4, "float64": 1e8}
"""The offset at which all outputs are shown beside each other: half of the digits."""
NO_DIGITS, HALF = 0.5, 0.6
"""Fewer digits left than the first are none; a smaller part than the second is a loss."""


def show(report: Report, console: Console, output: str = "y") -> None:
    """Print a report: one output against the offset, all outputs at one offset, named rows."""
    rows = f"{report.rows} rows of D = {report.size} with standard deviation 1"
    console.print(Text(f"\n{rows}; gamma, beta, dy random; eps {report.eps:g}"))
    console.print(Text(", ".join(f"{name} {text}" for name, text in report.machine.items())))
    for sweep in report.sweeps:
        show_digits(sweep, output, console)
        show_at(sweep, MIDDLE[sweep.dtype], console)
    console.print(Text("\nEach instability, with a row that triggers it", style="bold"))
    for row in report.named:
        show_row(row, console)
    console.print(
        "\n--output shows another result, --png FILE draws all of them, --json is for programs."
    )


def show_digits(sweep: Sweep, output: str, console: Console) -> None:
    """Print how many decimal digits of an output are left as the offset grows."""
    full = -math.log10(sweep.u)
    title = f"\n{sweep.dtype}, {output}: correct digits, of {full:.1f}, as mean/std grows"
    console.print(Text(title, style="bold"))
    decades = [k for k, each in enumerate(sweep.offsets) if math.log10(each).is_integer()]
    places = decades[:: math.ceil(len(decades) / COLUMNS)]
    powers = [_power(sweep.offsets[k]) for k in places]
    table = number_table(["mean/std", *powers, "slope"])
    for name, curve in sweep.of(output).items():
        cells = [_digits(curve.relative[k], full) for k in places]
        table.add_row(name, *cells, f"{curve.slope:.1f}")
    console.print(table)
    console.print(Text("slope: the power of mean/std with which the error grows", style="dim"))


def _power(offset: float) -> str:
    """Write a power of ten: 1e4."""
    return f"1e{round(math.log10(offset))}"


def _digits(relative: float, full: float) -> Text:
    """Return how many digits an error leaves, if it is a number."""
    if not math.isfinite(relative):
        return Text(f"{relative}", style="bold red")
    left = max(0.0, -math.log10(relative)) if relative else full
    style = "red" if left < NO_DIGITS else "yellow" if left < HALF * full else "green"
    return Text(f"{left:.1f}", style=style)


def show_at(sweep: Sweep, offset: float, console: Console) -> None:
    """Print the errors of all outputs at one offset: a good variance does not make a good y."""
    place = sweep.offsets.index(offset)
    title = f"\n{sweep.dtype}, mean/std = {_power(offset)}: errors, in units of u = {sweep.u:.1e}"
    console.print(Text(title, style="bold"))
    table = number_table(["error in u", *OUTPUTS, "y in ulp"])
    for name, y in sweep.of("y").items():
        curves = [sweep.of(output).get(name) for output in OUTPUTS]
        errors = [
            "-" if each is None else number(each.relative[place] / sweep.u) for each in curves
        ]
        table.add_row(name, *errors, number(y.ulp[place]))
    console.print(table)
    note = "relative to the natural scale of each output; truenorm returns no variance"
    console.print(Text(note, style="dim"))


def show_row(row: NamedRow, console: Console) -> None:
    """Print what a row returns: algorithms that agree to the digits shown are together."""

    def written(values: Sequence[float]) -> tuple[str, ...]:
        return tuple(f"{value + 0.0:.{row.digits}g}" for value in values)

    right = written(row.exact)
    groups: dict[tuple[str, ...], list[str]] = {right: []}
    for name, values in row.returned.items():
        groups.setdefault(written(values), []).append(name)
    table = Table.grid(padding=(0, 2))
    for justify in ("left", *("right" for _ in right), "left"):
        table.add_column(justify=justify, no_wrap=justify == "right")  # type: ignore[arg-type]
    for texts, names in groups.items():
        mark, style = ("exact", "green") if texts == right else ("", "red")
        table.add_row(mark, *(Text(text, style=style) for text in texts), _listed(names))
    console.print(
        Text.assemble(f"\n{row.dtype}  ", (row.name, "bold"), f": {row.output} of {row.row}")
    )
    for part in (table, Text(row.why, "dim"), Text(f"remedy: {row.remedy}", "dim")):
        console.print(Padding.indent(part, 2))


def _listed(names: Sequence[str]) -> str:
    """Name the algorithms of a group, the larger part of them together."""
    if len(names) <= len(ALGORITHMS) // 2:
        return ", ".join(names)
    return "truenorm and all others" if OURS in names else "all others"
