"""A demonstration on a terminal: how many digits are left, and what goes wrong on named rows."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from truenorm.demo.algorithms import ALGORITHMS, OURS, OUTPUTS
from truenorm.demo.demonstration import NamedRow, Report, Sweep
from truenorm.tools.picture import save
from truenorm.tools.rich_tables import rich_table
from truenorm.tools.text import number

COLUMNS = 8
"""More offsets do not fit beside each other."""
MIDDLE = {"float32": 1e4, "float64": 1e8}
"""The offset at which all outputs are shown beside each other: half of the digits."""
NO_DIGITS, HALF = 0.5, 0.6
"""Fewer digits left than the first are none; a smaller part than the second is a loss."""


def show_demonstration(report: Report, console: Console, output: str = "y") -> None:
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
    table = rich_table("l" + "r" * (len(powers) + 1), ["mean/std", *powers, "slope"])
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
    table = rich_table("l" + "r" * (len(OUTPUTS) + 1), ["error in u", *OUTPUTS, "y in ulp"])
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


# Okabe and Ito's colours, which colour-blind people tell apart; markers do so in grey.
LINES: dict[str, dict[str, Any]] = {
    "one-pass": {"color": "#d55e00", "marker": "v", "ms": 5},
    "Welford": {"color": "#e69f00", "marker": "D", "ms": 4},
    "two-pass (textbook)": {"color": "#0072b2", "marker": "o", "ms": 6.5, "mfc": "white"},
    "corrected two-pass": {"color": "#56b4e9", "marker": "x", "ms": 5, "ls": "--"},
    "rounded exact mean": {"color": "#8c8c8c", "marker": "+", "ms": 6, "ls": ":"},
    "pair mean": {"color": "#009e73", "marker": "s", "ms": 4},
    "textbook in float64 then cast": {"color": "#cc79a7", "marker": "o", "ms": 7, "mfc": "white"},
    "truenorm": {"color": "#000000", "marker": ".", "ms": 5},
}
FAINT = "#b0b0b0"
TOP = 30.0
"""Where errors beyond it are drawn, and results that are not finite."""


def draw(sweeps: Sequence[Sweep], outputs: Sequence[str] = OUTPUTS) -> Figure:
    """Draw outputs of each type, two panels beside each other, with the names of the lines."""
    panels = [(sweep, output) for sweep in sweeps for output in outputs]
    rows, columns = (len(panels) + 1) // 2, min(len(panels), 2)
    size = (7.4, 0.9 + (2.6 if columns == 2 else 4.2) * rows)
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    grid = figure.subplots(rows, columns, squeeze=False, subplot_kw={"facecolor": "white"})
    for axes, (sweep, output) in zip(grid.flat, panels, strict=True):
        _panel(axes, sweep, output)
    for axes in grid[:, 0]:
        axes.set_ylabel("error / natural scale")
    lines, names = grid.flat[outputs.index("y")].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=3, frameon=False, fontsize=9.5)
    return figure


def write(report: Report, file: Path) -> None:
    """Write the picture of a report."""
    save(draw(report.sweeps), file)


def _panel(axes: Axes, sweep: Sweep, output: str) -> None:
    """Draw the errors of an output, and what u times powers of the offset would be."""
    last = sweep.offsets[-1]
    axes.set(
        title=f"{output}, {sweep.dtype}",
        xlabel="κ = mean / standard deviation",
        xscale="log",
        yscale="log",
        xlim=(0.7, last * 2),
        ylim=(sweep.u / 10, TOP * 2),
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(color=FAINT, linewidth=0.5, alpha=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.axhspan(1.0, TOP * 2, color="#f2f2f2", linewidth=0)
    _note(axes, "no digit left", 1.0, 1.0, (0, 4), va="bottom")
    for power, name in enumerate(("u", "u·κ", "u·κ²")):
        end = min(last, (0.7 / sweep.u) ** (1 / power)) if power else last
        axes.plot([1, end], [sweep.u, sweep.u * end**power], ":", color=FAINT, lw=1.2, zorder=1)
        _note(axes, name, end, sweep.u * end**power, (6, -1), va="top" if power else "center")
    for algorithm, curve in sweep.of(output).items():
        style = {"lw": 1.4, "zorder": 3, **LINES[algorithm]}
        errors = [error if error < TOP else TOP for error in curve.relative]
        axes.plot(sweep.offsets, errors, label=algorithm, **style)
        if errors[-1] == TOP:
            _note(axes, number(curve.relative[-1]), last, TOP, (8, 0), va="center")


def _note(axes: Axes, text: str, x: float, y: float, shift: tuple[int, int], va: str) -> None:
    axes.annotate(text, (x, y), xytext=shift, textcoords="offset points", fontsize=8, va=va)
