"""``python -m benchmarks.gpu_rows_figure``: draw a row's way through the GPU kernels.

It draws docs/figures/gpu-forward.svg and gpu-backward.svg, and needs Matplotlib (the dependency
group "figures").
"""

import sys
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from truenorm.tools.picture import save

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
MEMORY, DEVICE, AGAIN, HOST = "#eeeeee", "#bfdcec", "#bfe3d6", "#fbe0b3"
"""Of Okabe and Ito, lightened: memory, the kernel, what is done with undecided rows, the host."""


class Box(NamedTuple):
    """A text in a place: its middle and its size, and what it stands for."""

    text: str
    x: float
    y: float
    width: float
    height: float
    colour: str


class Arrow(NamedTuple):
    """From one point to another, with words beside its middle."""

    start: tuple[float, float]
    end: tuple[float, float]
    text: str = ""


FORWARD = (
    Box("global memory: x, D elements", 2.2, 9.4, 4.0, 0.7, MEMORY),
    Box(
        "registers of a team: 16 bytes at a load,\n8 elements a thread; beyond 16 a thread\n"
        "the row is read again, from a cache",
        2.2,
        8.0,
        4.0,
        1.15,
        DEVICE,
    ),
    Box("sum 1, of x - x₀: near,\na float32 next to the mean", 2.2, 6.6, 4.0, 0.85, DEVICE),
    Box(
        "sums 2 and 3, of d = x - near and d²,\nfloat64: low, v, r = 1/√(v + eps)",
        2.2,
        5.3,
        4.0,
        0.85,
        DEVICE,
    ),
    Box(
        "z = ((x - near) - low)·(r·gamma) + beta\nand its bound E, float64",
        2.2,
        4.0,
        4.0,
        0.85,
        DEVICE,
    ),
    Box("z - E and z + E rounded:\nsame bits?", 2.2, 2.75, 4.0, 0.85, DEVICE),
    Box("global memory: y", 2.2, 1.4, 4.0, 0.7, MEMORY),
    Box("near, low, v:\n24 bytes a row", 6.6, 5.3, 2.6, 0.85, MEMORY),
    Box("row status:\nundecided", 6.6, 2.75, 2.6, 0.85, MEMORY),
    Box(
        "the host reads the status\n(the one wait of correct mode)",
        10.2,
        2.75,
        3.4,
        0.85,
        HOST,
    ),
    Box("forward_tier2: the row\nin double-double", 10.2, 4.4, 3.4, 0.85, AGAIN),
    Box(
        "what pairs refuse, and what is\nnot finite: NumPy, and integers",
        10.2,
        6.0,
        3.4,
        0.85,
        HOST,
    ),
)
FORWARD_ARROWS = (
    *(
        Arrow((2.2, a), (2.2, b))
        for a, b in ((9.05, 8.6), (7.4, 7.05), (6.15, 5.75), (4.85, 4.45))
    ),
    Arrow((2.2, 3.55), (2.2, 3.2)),
    Arrow((2.2, 2.3), (2.2, 1.77), "yes or no: the lower end"),
    Arrow((4.22, 5.3), (5.28, 5.3)),
    Arrow((4.22, 2.75), (5.28, 2.75), "no"),
    Arrow((7.92, 2.75), (8.48, 2.75)),
    Arrow((10.2, 3.2), (10.2, 3.95)),
    Arrow((10.2, 4.85), (10.2, 5.55), "few"),
)
BACKWARD = (
    Box("global memory: dy, x; near, low, v", 2.2, 9.4, 4.0, 0.7, MEMORY),
    Box(
        "a team takes the rows of a run (16, or 64\nif D ≤ 1024), and reads each twice",
        2.2,
        8.2,
        4.0,
        0.85,
        DEVICE,
    ),
    Box("four sums over a row, at once, float64:\ng·c, g², c, g", 2.2, 6.9, 4.0, 0.85, DEVICE),
    Box("z = r·((g - mean g) - c·q), its bound,\nboth ends rounded", 2.2, 5.6, 4.0, 0.85, DEVICE),
    Box("global memory: dx;\nrow status", 2.2, 4.2, 4.0, 0.85, MEMORY),
    Box(
        "the host reads the row status, and flags\nof undecided columns",
        2.2,
        2.8,
        4.0,
        0.85,
        HOST,
    ),
    Box(
        "undecided rows: backward_tier2;\nundecided columns: columns_tier2",
        2.2,
        1.4,
        4.0,
        0.85,
        AGAIN,
    ),
    Box(
        "sums over the run, in registers:\ndy·xhat (float64), its bound (float32),\n"
        "dy (float64, exact or NaN)",
        7.9,
        5.6,
        4.0,
        1.15,
        DEVICE,
    ),
    Box("global memory: the sums of each run,\n20 bytes a column", 7.9, 4.2, 4.0, 0.85, MEMORY),
    Box("column_sums: runs in order, as pairs", 7.9, 2.8, 4.0, 0.7, DEVICE),
    Box("round_dgamma, round_dbeta", 7.9, 1.4, 4.0, 0.7, DEVICE),
    Box(
        "D > 4096: no registers for that;\nthe kernel run_sums reads dy and x again",
        7.9,
        7.3,
        4.0,
        0.85,
        AGAIN,
    ),
)
BACKWARD_ARROWS = (
    *(
        Arrow((2.2, a), (2.2, b))
        for a, b in ((9.05, 8.65), (7.75, 7.35), (6.45, 6.05), (5.15, 4.65))
    ),
    Arrow((2.2, 3.75), (2.2, 3.25)),
    Arrow((2.2, 2.35), (2.2, 1.85)),
    Arrow((4.22, 5.6), (5.88, 5.6), "each row"),
    Arrow((7.9, 6.85), (7.9, 6.2)),
    Arrow((7.9, 5.0), (7.9, 4.65), "each run"),
    Arrow((7.9, 3.75), (7.9, 3.17)),
    Arrow((7.9, 2.43), (7.9, 1.77)),
)


def draw(axes: Axes, boxes: tuple[Box, ...], arrows: tuple[Arrow, ...], width: float) -> None:
    """Draw boxes and the arrows between them."""
    for box in boxes:
        corner = box.x - box.width / 2, box.y - box.height / 2
        axes.add_patch(
            FancyBboxPatch(
                corner, box.width, box.height, boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=box.colour, edgecolor="#666666", linewidth=0.7,
            )
        )  # fmt: skip
        axes.text(box.x, box.y, box.text, ha="center", va="center", fontsize=8.5)
    for arrow in arrows:
        axes.annotate(
            "",
            xy=arrow.end,
            xytext=arrow.start,
            arrowprops={"arrowstyle": "-|>", "color": "#333333"},
        )
        middle = [(a + b) / 2 for a, b in zip(arrow.start, arrow.end, strict=True)]
        upright = arrow.start[0] == arrow.end[0]
        axes.text(
            middle[0] + (0.12 if upright else 0), middle[1] + (0 if upright else 0.13), arrow.text,
            ha="left" if upright else "center", va="center" if upright else "bottom", fontsize=8,
        )  # fmt: skip
    axes.set_xlim(0, width)
    axes.set_ylim(0.8, 9.9)
    axes.set_axis_off()


def main() -> int:
    """Draw both passes."""
    for name, boxes, arrows, width in (
        ("gpu-forward", FORWARD, FORWARD_ARROWS, 12.1),
        ("gpu-backward", BACKWARD, BACKWARD_ARROWS, 10.1),
    ):
        figure = Figure(figsize=(0.72 * width, 6.4), layout="constrained", facecolor="white")
        draw(figure.subplots(), boxes, arrows, width)
        save(figure, FIGURES / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
