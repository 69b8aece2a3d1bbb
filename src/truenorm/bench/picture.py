"""A report as a picture: time over shape, one panel for each direction."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from truenorm.bench.contestants import DIRECTIONS, FLOORS
from truenorm.bench.report import Report, label
from truenorm.tools.picture import save
from truenorm.tools.text import counted

__all__ = ["draw", "write"]

FLOOR: dict[str, Any] = {"color": "#555555", "marker": "_", "ms": 26, "mew": 2}
# Colours that people with any kind of colour vision tell apart (Okabe and Ito), and markers.
STYLES: dict[str, dict[str, Any]] = {
    "truenorm correct": {"color": "#0072b2", "marker": "o"},
    "truenorm fast": {"color": "#56b4e9", "marker": "D"},
    "textbook": {"color": "#d55e00", "marker": "s"},
    "textbook in float64": {"color": "#cc79a7", "marker": "^"},
}


def draw(report: Report) -> Canvas:
    """Draw both directions beside each other."""
    width = max(11.0, 1.15 * len(report.shapes) + 3.0)
    canvas = Canvas(figsize=(width, 5.2), facecolor="white", layout="constrained")
    look = {"facecolor": "white"}
    panels = canvas.subplots(1, len(DIRECTIONS), sharey=True, subplot_kw=look)
    for direction, axes in zip(DIRECTIONS, panels, strict=True):
        _panel(report, direction, axes)
    panels[0].set_ylabel("time of a call, ms")
    marks, names = panels[0].get_legend_handles_labels()
    names[0] = f"{' | '.join(FLOORS.values())} (the same bytes moved)"
    canvas.legend(marks, names, loc="outside lower center", ncols=len(names), frameon=False)
    machine = report.machine
    canvas.suptitle(
        f"Layer norm in {report.dtype}, medians of {report.rounds} rounds: backend "
        f"{report.backend}, {counted(report.threads, 'thread')}\n"
        f"{machine['cpu']}, {machine['cores']} cores, NumPy {machine['numpy']}, "
        f"{machine['date']}",
        fontsize=10,
    )
    return canvas


def write(report: Report, file: Path) -> None:
    """Write the picture of a report."""
    save(draw(report), file)


def _panel(report: Report, direction: str, axes: Axes) -> None:
    """Draw one direction: a mark for each contestant and shape, side by side."""
    by_shape = [report.of(shape)[direction] for shape in report.shapes]
    for number, name in enumerate(by_shape[0]):
        # The floor is below all of them, in the middle.
        shift = (number - len(by_shape[0]) / 2) * 0.18 if number else 0
        places = [place + shift for place in range(len(by_shape))]
        times = [figures[name].seconds * 1e3 for figures in by_shape]
        axes.plot(places, times, ls="", label=name, **STYLES.get(name, FLOOR))
    for place in range(0, len(by_shape), 2):
        axes.axvspan(place - 0.5, place + 0.5, color="#f3f3f3", zorder=0)
    axes.set(title=direction, xlabel="shape of x", yscale="log", xlim=(-0.5, len(by_shape) - 0.5))
    axes.set_xticks(range(len(by_shape)), map(label, report.shapes), rotation=40, ha="right")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
