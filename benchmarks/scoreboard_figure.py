"""``python -m benchmarks.scoreboard_figure``: draw docs/figures/scoreboard.svg.

It reads what ``python -m benchmarks.scoreboard`` wrote, and needs Matplotlib (the dependency group
"figures").
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from truenorm.tools.picture import save

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "scoreboard.json"
FIGURE = ROOT / "docs" / "figures" / "scoreboard.svg"
FLOOR, TOP = 1e-2, 1e12
"""Errors below are drawn at the bottom: most are 0, which has no logarithm. What is above, or not
finite, is drawn at the top."""

# Okabe and Ito's colours, which the colour-blind can tell apart, and a marker for each besides.
# Those that may hide another one are drawn first, larger.
STYLES: dict[str, dict[str, Any]] = {
    "onnx": {"color": "#b0b0b0", "marker": "o", "ms": 11, "mew": 2},
    "textbook": {"color": "#e69f00", "marker": "s", "ms": 8},
    "onnxruntime": {"color": "#56b4e9", "marker": "D", "ms": 7},
    "torch": {"color": "#d55e00", "marker": "^", "ms": 6},
    "jax": {"color": "#009e73", "marker": "v", "ms": 6},
    "jax-fast": {"color": "#cc79a7", "marker": "X", "ms": 6},
    "thinc": {"color": "#7a5c00", "marker": "P", "ms": 6},
    "textbook64": {"color": "#0072b2", "marker": "s", "ms": 9},
    "truenorm-fast": {"color": "#000000", "marker": "x", "ms": 6},
    "truenorm": {"color": "#000000", "marker": "o", "ms": 4, "mfc": "#000000"},
}


def draw(axes: Axes, subjects: dict[str, Any], output: str) -> None:
    """Draw the errors of one output, and what grows like kappa and like its square."""
    for key in (key for key in STYLES if key in subjects):
        found = subjects[key]["against_kappa"].get(output)
        if found:
            errors = [min(max(float(error), FLOOR), TOP) for error in found["natural"]]
            # A marker at the edge is drawn whole.
            style = {"mfc": "none", "lw": 1, "clip_on": False} | STYLES[key]
            axes.loglog(found["kappa"], errors, label=subjects[key]["name"], **style)
    for power, name in ((1, "κ"), (2, "κ²")):
        ends = [10.0, (1e6, 1e5)[power - 1]]
        axes.loglog(ends, [4 * end**power for end in ends], "k:", lw=1)
        axes.annotate(name, (ends[1], 4 * ends[1] ** power), (4, 2), textcoords="offset points")
    axes.set_ylim(FLOOR, TOP)
    axes.yaxis.set_major_formatter(FuncFormatter(power_of_ten))
    axes.set_ylabel(f"error of {output} / (u · scale)")
    axes.grid(alpha=0.3)


def power_of_ten(value: float, _: int | None = None) -> str:
    """Return the text of a tick; at the edges there is what lies beyond them, too."""
    sign = {FLOOR: r"\leq ", TOP: r"\geq "}.get(value, "")
    return f"${sign}10^{{{round(math.log10(value))}}}$"


def main() -> int:
    """Draw y above dx."""
    subjects = json.loads(RESULTS.read_text(encoding="utf-8"))["subjects"]
    mpl.rcParams["font.size"] = 11
    figure = Figure(figsize=(7.2, 8.4), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for axes, output in zip(panels, ("y", "dx"), strict=True):
        draw(axes, subjects, output)
    panels[1].set_xlabel("condition number κ = rms(x)/sqrt(var + eps)")
    lines = panels[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=2, frameon=False)
    save(figure, FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
