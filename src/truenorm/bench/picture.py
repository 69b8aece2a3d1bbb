"""A report as a picture: time over shape, one panel for each direction."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from truenorm.bench.contestants import DIRECTIONS, FLOORS
from truenorm.bench.report import Report, label
from truenorm.tools.text import counted

__all__ = ["draw"]

# Colours that people with any kind of colour vision tell apart (Okabe and Ito), and markers.
STYLES = {
    "truenorm correct": ("#0072b2", "o"),
    "truenorm fast": ("#56b4e9", "D"),
    "textbook": ("#d55e00", "s"),
    "textbook in float64": ("#cc79a7", "^"),
}
FLOOR_COLOUR = "#555555"


def draw(report: Report, file: Path) -> None:
    """Write a PNG."""
    width = max(11.0, 1.15 * len(report.shapes) + 3.0)
    canvas = Canvas(figsize=(width, 5.2), dpi=150, facecolor="white", layout="constrained")
    panels = canvas.subplots(1, len(DIRECTIONS), sharey=True)
    for direction, axes in zip(DIRECTIONS, panels, strict=True):
        _panel(report, direction, axes)
    panels[0].set_ylabel("time of a call, ms")
    handles, names = panels[0].get_legend_handles_labels()
    names = [f"{name} (the same bytes moved)" if "|" in name else name for name in names]
    canvas.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    machine = report.machine
    canvas.suptitle(
        f"Layer norm in {report.dtype}, medians of {report.rounds} rounds: backend "
        f"{report.backend}, {counted(report.threads, 'thread')}\n"
        f"{machine['cpu']}, {machine['cores']} cores, NumPy {machine['numpy']}, "
        f"{machine['date']}",
        fontsize=10,
    )
    canvas.savefig(file, format="png")


def _panel(report: Report, direction: str, axes: Axes) -> None:
    """Draw one direction: a mark for each contestant and shape, side by side."""
    axes.set_facecolor("white")
    places = range(len(report.shapes))
    by_shape = [report.of(shape)[direction] for shape in report.shapes]
    names = [name for name in by_shape[0] if name != FLOORS[direction]]
    floors = [figures[FLOORS[direction]].seconds * 1e3 for figures in by_shape]
    axes.hlines(
        floors, *_ends(places, 0.4), color=FLOOR_COLOUR, lw=2, label=" | ".join(FLOORS.values())
    )
    for number, name in enumerate(names):
        colour, marker = STYLES[name]
        shift = (number - (len(names) - 1) / 2) * 0.18
        times = [figures[name].seconds * 1e3 for figures in by_shape]
        where = [place + shift for place in places]
        axes.plot(where, times, color=colour, marker=marker, ms=6, ls="", label=name)
    for place in places[::2]:
        axes.axvspan(place - 0.5, place + 0.5, color="#f3f3f3", zorder=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(places, [label(shape) for shape in report.shapes], rotation=40, ha="right")
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xlabel("shape of x")
    axes.set_title(direction, fontsize=11)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _ends(places: range, reach: float) -> tuple[list[float], list[float]]:
    """Return where short lines around these places begin and end."""
    return [place - reach for place in places], [place + reach for place in places]
