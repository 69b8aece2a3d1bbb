"""``python -m benchmarks.cost_figure``: draw docs/figures/cost.svg.

It draws what `truenorm.cost` counts, so it measures nothing and needs no results. It needs
Matplotlib (the dependency group "figures").
"""

import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from truenorm.cost import Form, Keep, PassCost, layer_norm_cost
from truenorm.tools.picture import save

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "cost.svg"
SHAPE = (8, 1024, 4096)
ELEMENTS = 8 * 1024 * 4096
FORMS: tuple[tuple[Form, Keep], ...] = (
    ("textbook", "xhat"),
    ("textbook", "x"),
    ("blocked", "xhat"),
    ("blocked", "x"),
    ("fused", "xhat"),
    ("fused", "x"),
)
COLOURS = {  # of Okabe and Ito, which remain distinct for the colour-blind
    "D1": "#0072b2",
    "D2": "#56b4e9",
    "D3": "#009e73",
    "D5": "#f0e442",
    "D6": "#e69f00",
    "D7": "#0072b2",
    "D8": "#009e73",
    "D9": "#cc79a7",
    "D17": "#d55e00",
}
MEANINGS = {
    "forward": "D1 mean · D2 centred · D3 variance · D5 xhat · D6 y",
    "backward": "D2 and D5 xhat again · D7 dbeta · D8 dgamma · D9 g · D17 dx",
}
ROOM = 1.6
"""Bytes per element that a segment needs for each letter of its name."""


def bytes_by_equation(counted: PassCost) -> dict[str, float]:
    """Return the bytes per element of each equation; what is one number a row does not show."""
    found: dict[str, float] = {}
    for step in counted.steps:
        moved = (step.bytes_read + step.bytes_written) / ELEMENTS
        found[step.equation] = found.get(step.equation, 0) + moved
    return {equation: moved for equation, moved in found.items() if moved > 0.01}


def draw(axes: Axes, direction: str, floor: float, floor_name: str) -> None:
    """Draw one pass: a bar for each form."""
    labels = []
    for place, (form, keep) in enumerate(FORMS):
        cost = layer_norm_cost(SHAPE, "float32", form, keep)
        counted = cost.passes[direction]
        left = 0.0
        for equation, moved in bytes_by_equation(counted).items():
            axes.barh(
                place, moved, left=left, height=0.72, color=COLOURS[equation],
                edgecolor="white", linewidth=1,
            )  # fmt: skip
            if moved >= ROOM * len(equation):
                axes.text(left + moved / 2, place, equation, ha="center", va="center", fontsize=9)
            left += moved
        axes.text(left + 0.8, place, f"{left:.1f}", va="center", fontsize=10)
        labels.append(f"{form}, {keep} kept")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.axvline(floor, color="black", linestyle=":", linewidth=1.2, zorder=0)
    axes.text(floor + 0.6, -0.62, floor_name, fontsize=9, va="bottom")
    axes.set_title(direction, loc="left", fontsize=12, pad=16)
    axes.set_xlabel(f"bytes read and written per element, float32\n{MEANINGS[direction]}")
    axes.set_xlim(0, 106)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> int:
    """Draw both passes, one above the other, to the same scale."""
    with mpl.rc_context({"font.size": 10}):
        figure = Figure(figsize=(7.4, 6.8), layout="constrained", facecolor="white")
        forward, backward = figure.subplots(2, 1)
        draw(forward, "forward", 8, "read x, write y")
        draw(backward, "backward", 12, "read dy and x, write dx")
        save(figure, FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
