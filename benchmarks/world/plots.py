"""Two figures of the page: the errors of y against the length of rows, and against their mean."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from benchmarks.common import FIGURES, read_results
from benchmarks.picture import name_ends, save
from benchmarks.world.page import FILES, NORMS, base_of

COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5c00")
"""Colours of the packages with the largest errors, which have names."""
GREY = "#b0b0b0"
CURVES = {
    "length": "length of the row",
    "mean": "mean of the row, standard deviation 1",
}
"""By curve: the name of its horizontal axis."""
OURS = ("truenorm correct", "truenorm fast")
KNOWN, KNOWN_COLOUR = "PyTorch layer_norm", "#b2182b"
"""It has a name wherever its line is, too: most readers compare with it."""
TOP = 1e10


def draw() -> None:
    """Draw both figures from the file of results."""
    rows = read_results(FILES[0])["rows"]
    for curve, label in CURVES.items():
        lines = lines_of(rows, curve)
        save(figure_of(lines, curve, label), FIGURES / f"world-{curve}.svg")


def lines_of(rows: list[Mapping[str, Any]], curve: str) -> dict[str, dict[float, float]]:
    """Return the errors in float32 of each norm that was judged; equal lines share their names.

    Of a softmax, whose errors are not those of a norm, there is no line.
    """
    by_line: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for row in (each for each in rows if base_of(each) in NORMS):
        points = row.get("errors", {}).get("float32", {}).get(curve, {})
        known = tuple((float(x), float(e)) for x, e in points.items() if e is not None)
        if known:
            by_line.setdefault(known, []).append(row["name"])
    return {_together(names): dict(line) for line, names in by_line.items()}


def _together(names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return names[0] + more


def figure_of(lines: Mapping[str, Mapping[float, float]], curve: str, label: str) -> Figure:
    """Return a figure with a line a norm; the largest errors, PyTorch and truenorm have names."""
    figure = Figure(figsize=(7.2, 5.4), layout="constrained", facecolor="white")
    axes = figure.subplots()
    order = sorted(lines, key=lambda name: -list(lines[name].values())[-1])
    colours = dict.fromkeys(order, GREY) | dict(zip(order, COLOURS, strict=False))
    colours |= {name: "#000000" for name in order if name.startswith(OURS)}
    colours |= {name: KNOWN_COLOUR for name in order if name.startswith(KNOWN)}
    ends = {}
    for name in reversed(order):
        x = [max(each, 0.1) for each in lines[name]]  # a mean of 0 is drawn at 0.1
        errors = [min(each, TOP) for each in lines[name].values()]
        colour = colours[name]
        axes.loglog(x, errors, "o-", color=colour, ms=4, lw=0.8 if colour == GREY else 1.5)
        if colour != GREY:
            ends[name] = (errors[-1], colour)
    if curve == "mean":
        axes.loglog([10, 1e4], [5, 5e3], "k:", lw=1)
        axes.set_xticks([0.1, 1, 10, 100, 1000, 10000], ["0", "1", "10", "100", "1,000", "10,000"])
    else:
        ticks = [int(each) for each in next(iter(lines.values()))]
        axes.set_xticks(ticks, [f"{each:,}" for each in ticks])
        axes.minorticks_off()
    axes.set_xlabel(label, fontsize=12)
    axes.set_title("largest error of y in float32, in ulp", loc="left", fontsize=12, pad=18)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    name_ends(axes, ends)
    return figure


if __name__ == "__main__":
    draw()
