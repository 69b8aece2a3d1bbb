"""The error of each algorithm against the offset, drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from truenorm.demo.errors import OUTPUTS
from truenorm.demo.report import Report, Sweep
from truenorm.tools.picture import save
from truenorm.tools.text import number

__all__ = ["draw", "write"]

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
