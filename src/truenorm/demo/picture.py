"""The error of each algorithm against the offset, drawn."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from truenorm.demo.errors import OUTPUTS
from truenorm.demo.report import Report, Sweep
from truenorm.tools.picture import save
from truenorm.tools.text import number, power_of_ten

__all__ = ["draw", "draw_one", "write"]

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
INK, FAINT = "#333333", "#b0b0b0"
TOP = 30.0
"""Where errors beyond it are drawn, and results that are not finite."""


def draw_one(sweep: Sweep, output: str) -> Figure:
    """Draw one output of a type, with the names of the lines beside it."""
    figure = Figure(figsize=(8.0, 4.2), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    _panel(axes, sweep, output)
    _describe(axes, f"error of {output}, relative to its natural scale")
    title = f"Error of {output} in {sweep.dtype} as the mean of a row outgrows its spread"
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    figure.legend(loc="outside right center", frameon=False, labelcolor=INK, fontsize=9.5)
    return figure


def draw(sweeps: Sequence[Sweep]) -> Figure:
    """Draw all outputs, four panels to a type, with the names of the lines above."""
    size = (7.4, 0.9 + 5.2 * len(sweeps))
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    grid = figure.subplots(2 * len(sweeps), 2, squeeze=False)
    panels = [(sweep, output) for sweep in sweeps for output in OUTPUTS]
    for axes, (sweep, output) in zip(grid.flat, panels, strict=True):
        _panel(axes, sweep, output)
        _describe(axes, "error / natural scale" if axes.get_subplotspec().is_first_col() else "")
        axes.set_title(f"{output}, {sweep.dtype}", loc="left", fontsize=10.5, color=INK)
    lines = [line for line in grid[0, 1].get_lines() if not line.get_label().startswith("_")]
    figure.legend(
        handles=lines,
        loc="outside upper center",
        ncols=3,
        frameon=False,
        labelcolor=INK,
        fontsize=9.5,
    )
    return figure


def write(report: Report, file: Path) -> None:
    """Write the picture of a report."""
    save(draw(report.sweeps), file)


def _panel(axes: Axes, sweep: Sweep, output: str) -> None:
    """Draw the errors of an output, and what u times powers of the offset would be."""
    last = sweep.offsets[-1]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.7, last * 2)
    axes.set_ylim(sweep.u / 10, TOP * 2)
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


def _note(
    axes: Axes, text: str, x: float, y: float, shift: tuple[float, float], **place: Any
) -> None:
    axes.annotate(
        text, (x, y), xytext=shift, textcoords="offset points", color=INK, fontsize=8, **place
    )


def _describe(axes: Axes, label: str) -> None:
    axes.set_xlabel("κ = mean / standard deviation", color=INK)
    axes.set_ylabel(label, color=INK)
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(map(math.log10, axis.get_view_interval()))
        step = 1 if high - low < 9 else 2 if high - low < 12 else 3
        powers = range(math.ceil(low), math.floor(high) + 1)
        axis.set_major_locator(FixedLocator([10.0**k for k in powers if k % step == 0]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(value)))
    axes.tick_params(color=FAINT, labelcolor=INK, labelsize=9)
    axes.grid(color=FAINT, linewidth=0.5, alpha=0.4)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)
