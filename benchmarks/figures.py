"""``python -m benchmarks.figures NAME``: draw figures that need no run of another benchmark.

cost
    docs/figures/cost.svg, from the counts of `truenorm.cost`.
stability
    The figures of docs/stability.md and README.md, from results/demo.json, which
    ``truenorm demo --json`` wrote.
taylor
    docs/figures/taylor.svg, from results/gradient_methods.json.
gpu
    docs/figures/gpu-forward.svg and gpu-backward.svg: a row's way through the GPU kernels.

It needs Matplotlib (the dependency group "figures").
"""

import sys
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from benchmarks.common import FIGURES, RESULTS, options, read_results
from truenorm.cost import Form, Keep, PassCost, layer_norm_cost
from truenorm.tools.picture import save

SHAPE, ELEMENTS = (8, 1024, 4096), 8 * 1024 * 4096
FORMS: tuple[tuple[Form, Keep], ...] = (
    *(("textbook", "xhat"), ("textbook", "x")),
    *(("blocked", "xhat"), ("blocked", "x")),
    *(("fused", "xhat"), ("fused", "x")),
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
LETTER = 1.6
"""Bytes per element that a segment needs for each letter of its name."""


def bytes_by_equation(counted: PassCost) -> dict[str, float]:
    """Return the bytes per element of each equation, without those of one number a row."""
    moved: dict[str, float] = {}
    for step in counted.steps:
        share = (step.bytes_read + step.bytes_written) / ELEMENTS
        moved[step.equation] = moved.get(step.equation, 0) + share
    return {equation: share for equation, share in moved.items() if share > 0.01}


def cost_panel(axes: Axes, direction: str, floor: float, floor_name: str) -> None:
    """Draw one pass: a bar for each form."""
    for place, (form, keep) in enumerate(FORMS):
        counted = layer_norm_cost(SHAPE, "float32", form, keep).passes[direction]
        left = 0.0
        for equation, moved in bytes_by_equation(counted).items():
            axes.barh(
                place, moved, left=left, height=0.72, color=COLOURS[equation],
                edgecolor="white", linewidth=1,
            )  # fmt: skip
            if moved >= LETTER * len(equation):
                axes.text(left + moved / 2, place, equation, ha="center", va="center", fontsize=9)
            left += moved
        axes.text(left + 0.8, place, f"{left:.1f}", va="center", fontsize=10)
    axes.set_yticks(range(len(FORMS)), [f"{form}, {keep} kept" for form, keep in FORMS])
    axes.invert_yaxis()
    axes.axvline(floor, color="black", linestyle=":", linewidth=1.2, zorder=0)
    axes.text(floor + 0.6, -0.62, floor_name, fontsize=9, va="bottom")
    axes.set_title(direction, loc="left", fontsize=12, pad=16)
    axes.set_xlabel(f"bytes read and written per element, float32\n{MEANINGS[direction]}")
    axes.set_xlim(0, 106)
    axes.spines[["top", "right"]].set_visible(False)


def cost() -> None:
    """Draw both passes to the same scale."""
    with mpl.rc_context({"font.size": 10}):
        figure = Figure(figsize=(7.4, 6.8), layout="constrained", facecolor="white")
        forward, backward = figure.subplots(2, 1)
        cost_panel(forward, "forward", 8, "read x, write y")
        cost_panel(backward, "backward", 12, "read dy and x, write dx")
        save(figure, FIGURES / "cost.svg")


def stability() -> None:
    """Draw all outputs of each type, and y in float32 for README.md."""
    from truenorm.demo import draw, from_json

    report = from_json((RESULTS / "demo.json").read_text(encoding="utf-8"))
    for sweep in report.sweeps:
        save(draw([sweep]), FIGURES / f"stability-{sweep.dtype}.svg")
        if sweep.dtype == "float32":
            save(draw([sweep], ["y"]), FIGURES / "error-against-offset.svg")


def taylor() -> None:
    """Draw the Taylor remainders of three backward passes."""
    styles = {
        "truenorm": ("#1b6ca8", "o"),
        "textbook in float64": ("#c4622d", "s"),
        "dx off by 1e-6": ("#7a7a7a", "^"),
    }
    tests = read_results(RESULTS / "gradient_methods.json")["taylor"]
    with mpl.rc_context({"font.size": 11}):
        figure = Figure(figsize=(7.2, 4.4), layout="constrained")
        axes = figure.add_subplot()
        for name, test in tests.items():
            colour, marker = styles[name]
            relative = [r / h for r, h in zip(test["remainders"], test["steps"], strict=True)]
            label = f"{name}: level {test['level']:.0e}"
            axes.loglog(test["steps"], relative, color=colour, marker=marker, ms=5, label=label)
        steps = tests["truenorm"]["steps"]
        first = tests["truenorm"]["remainders"][0] / steps[0] ** 2
        axes.loglog(steps, [first * h for h in steps], "k:", lw=1, label="order 2")
        axes.set_xlabel("step h, in units of the spread of the inputs")
        axes.set_ylabel("R(h)/h, relative to the gradient")
        title = "Taylor remainder of layer norm, x = 1e8 + 1e-3 N(0,1), D = 16"
        axes.set_title(title, fontsize=11)
        axes.invert_xaxis()
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        save(figure, FIGURES / "taylor.svg")


MEMORY, DEVICE, FALLBACK, HOST = "#eeeeee", "#bfdcec", "#bfe3d6", "#fbe0b3"
"""Of Okabe and Ito, lightened."""
Point = tuple[float, float]


class Box(NamedTuple):
    """A text at a place; a text of n lines is as high as n lines."""

    colour: str
    x: float
    y: float
    text: str
    width: float = 4.0

    @property
    def height(self) -> float:
        """The height of the box."""
        return (0.7, 0.85, 1.15)[self.text.count("\n")]


class Arrow(NamedTuple):
    """An arrow from one point to another, with words beside its middle."""

    start: Point
    end: Point
    text: str = ""


FORWARD = (
    Box(MEMORY, 2.2, 9.4, "global memory: x, D elements"),
    Box(DEVICE, 2.2, 8.0, "registers of a team: 16 bytes at a load,\n8 elements a thread; beyond "
        "16 a thread\nthe row is read again, from a cache"),
    Box(DEVICE, 2.2, 6.6, "sum 1, of x - x₀: near,\na float32 next to the mean"),
    Box(DEVICE, 2.2, 5.3, "sums 2 and 3, of d = x - near and d²,\nfloat64: low, v, "
        "r = 1/√(v + eps)"),
    Box(DEVICE, 2.2, 4.0, "z = ((x - near) - low)·(r·gamma) + beta\nand its bound E, float64"),
    Box(DEVICE, 2.2, 2.75, "z - E and z + E rounded:\nsame bits?"),
    Box(MEMORY, 2.2, 1.4, "global memory: y"),
    Box(MEMORY, 6.6, 5.3, "near, low, v:\n24 bytes a row", 2.6),
    Box(MEMORY, 6.6, 2.75, "row status:\nundecided", 2.6),
    Box(HOST, 10.2, 2.75, "the host reads the status\n(the one wait of correct mode)", 3.4),
    Box(FALLBACK, 10.2, 4.4, "forward_tier2: the row\nin double-double", 3.4),
    Box(HOST, 10.2, 6.0, "rows still undecided or\nnot finite: NumPy, and integers", 3.4),
)  # fmt: skip
FORWARD_ARROWS = (
    Arrow((2.2, 9.05), (2.2, 8.6)),
    Arrow((2.2, 7.4), (2.2, 7.05)),
    Arrow((2.2, 6.15), (2.2, 5.75)),
    Arrow((2.2, 4.85), (2.2, 4.45)),
    Arrow((2.2, 3.55), (2.2, 3.2)),
    Arrow((2.2, 2.3), (2.2, 1.77), "yes or no: the lower end"),
    Arrow((4.22, 5.3), (5.28, 5.3)),
    Arrow((4.22, 2.75), (5.28, 2.75), "no"),
    Arrow((7.92, 2.75), (8.48, 2.75)),
    Arrow((10.2, 3.2), (10.2, 3.95)),
    Arrow((10.2, 4.85), (10.2, 5.55), "few"),
)
BACKWARD = (
    Box(MEMORY, 2.2, 9.4, "global memory: dy, x; near, low, v"),
    Box(DEVICE, 2.2, 8.2, "a team takes the rows of a run (16, or 64\nif D ≤ 1024), and "
        "reads each twice"),
    Box(DEVICE, 2.2, 6.9, "four sums over a row, at once, float64:\ng·c, g², c, g"),
    Box(DEVICE, 2.2, 5.6, "z = r·((g - mean g) - c·q), its bound,\nboth ends rounded"),
    Box(MEMORY, 2.2, 4.2, "global memory: dx;\nrow status"),
    Box(HOST, 2.2, 2.8, "the host reads the row status, and flags\nof undecided columns"),
    Box(FALLBACK, 2.2, 1.4, "undecided rows: backward_tier2;\nundecided columns: columns_tier2"),
    Box(DEVICE, 7.9, 5.6, "sums over the run, in registers:\ndy·xhat (float64), its bound "
        "(float32),\ndy (float64, exact or NaN)"),
    Box(MEMORY, 7.9, 4.2, "global memory: the sums of each run,\n20 bytes a column"),
    Box(DEVICE, 7.9, 2.8, "column_sums: runs in order, as pairs"),
    Box(DEVICE, 7.9, 1.4, "round_dgamma, round_dbeta"),
    Box(FALLBACK, 7.9, 7.3, "D > 4096: no registers for that;\nthe kernel run_sums reads dy and x "
        "again"),
)  # fmt: skip
BACKWARD_ARROWS = (
    Arrow((2.2, 9.05), (2.2, 8.65)),
    Arrow((2.2, 7.75), (2.2, 7.35)),
    Arrow((2.2, 6.45), (2.2, 6.05)),
    Arrow((2.2, 5.15), (2.2, 4.65)),
    Arrow((2.2, 3.75), (2.2, 3.25)),
    Arrow((2.2, 2.35), (2.2, 1.85)),
    Arrow((4.22, 5.6), (5.88, 5.6), "each row"),
    Arrow((7.9, 6.85), (7.9, 6.2)),
    Arrow((7.9, 5.0), (7.9, 4.65), "each run"),
    Arrow((7.9, 3.75), (7.9, 3.17)),
    Arrow((7.9, 2.43), (7.9, 1.77)),
)


def gpu() -> None:
    """Draw both passes of the GPU kernels."""
    for name, boxes, arrows, width in (
        ("gpu-forward", FORWARD, FORWARD_ARROWS, 12.1),
        ("gpu-backward", BACKWARD, BACKWARD_ARROWS, 10.1),
    ):
        figure = Figure(figsize=(0.72 * width, 6.4), layout="constrained", facecolor="white")
        axes = figure.subplots()
        for box in boxes:
            corner = box.x - box.width / 2, box.y - box.height / 2
            patch = FancyBboxPatch(
                corner, box.width, box.height, boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=box.colour, edgecolor="#666666", linewidth=0.7,
            )  # fmt: skip
            axes.add_patch(patch)
            axes.text(box.x, box.y, box.text, ha="center", va="center", fontsize=8.5)
        for arrow in arrows:
            style = {"arrowstyle": "-|>", "color": "#333333"}
            axes.annotate("", xy=arrow.end, xytext=arrow.start, arrowprops=style)
            x, y = ((a + b) / 2 for a, b in zip(arrow.start, arrow.end, strict=True))
            if arrow.start[0] == arrow.end[0]:
                axes.text(x + 0.12, y, arrow.text, ha="left", va="center", fontsize=8)
            else:
                axes.text(x, y + 0.13, arrow.text, ha="center", va="bottom", fontsize=8)
        axes.set_xlim(0, width)
        axes.set_ylim(0.8, 9.9)
        axes.set_axis_off()
        save(figure, FIGURES / f"{name}.svg")


DRAWN = {each.__name__: each for each in (cost, stability, taylor, gpu)}


def main(argv: list[str] | None = None) -> int:
    """Draw the named figures, or all."""
    parser = options("figures", "Draw figures of the docs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(DRAWN)}; or all")
    arguments = parser.parse_args(argv)
    for name in arguments.names or DRAWN:
        DRAWN[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
