"""``python -m benchmarks.figures NAME``: draw figures of the docs; nothing is measured.

cost, fusion
    From the counts and the operations of `truenorm.cost`.
gpu
    A row's way through the GPU kernels.
layers
    The layers of the package, from the import contracts in pyproject.toml.
paths
    The three paths from x to xhat, with the numbers of docs/learn/worked-row.md.
peers, taylor
    From results/peers.json and gradient_methods.json.
recipes
    In how many elements two recipes differ, from the judge's own bits.
roofline, scale
    From the models of `benchmarks.roofline` and `benchmarks.scale`.
stability
    From results/stability.json, which ``python -m benchmarks.stability`` wrote.

It needs Matplotlib (the dependency group "figures").
"""

import math
import re
import sys
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import LogLocator

from benchmarks import roofline as roofline_model
from benchmarks import scale as scale_model
from benchmarks.common import FIGURES, RESULTS, ROOT, options, read_results
from benchmarks.contestants import DIRECTIONS
from benchmarks.peers import times_of
from benchmarks.picture import name_ends, save
from benchmarks.stability import draw, from_json
from truenorm.cost import COLUMNS, ROWS, SHARES, Form, Keep, layer_norm_cost, operations
from truenorm.verify.inputs.families import PLAIN_X, Family
from truenorm.verify.norms.recipes import recipe_results
from truenorm.verify.norms.variants import adapt_case
from truenorm.verify.operations import LAYER_NORM, RMS_NORM, norm

# Colours of Okabe and Ito, which remain distinct for the colour-blind.
ORANGE, SKY, GREEN = "#e69f00", "#56b4e9", "#009e73"
BLUE, RED, PINK, GREY = "#0072b2", "#d55e00", "#cc79a7", "#8c8c8c"
PALE_GREY, PALE_BLUE, PALE_GREEN, PALE_ORANGE = "#eeeeee", "#bfdcec", "#bfe3d6", "#fbe0b3"


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def save_as(figure: Figure, name: str) -> None:
    """Write docs/figures/NAME.svg."""
    save(figure, FIGURES / f"{name}.svg")


def rounded_box(
    axes: Axes,
    centre: tuple[float, float],
    size: tuple[float, float],
    colour: str,
    text: str,
    font: float,
) -> None:
    """Draw a box with a text in it."""
    (x, y), (width, height) = centre, size
    patch = FancyBboxPatch(
        (x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0,rounding_size=0.08",
        facecolor=colour, edgecolor="#666666", linewidth=0.7,
    )  # fmt: skip
    axes.add_patch(patch)
    axes.text(x, y, text, ha="center", va="center", fontsize=font)


def without_frame(axes: Axes) -> None:
    """Remove the lines above and on the right."""
    axes.spines[["top", "right"]].set_visible(False)


COST_SHAPE = (8, 1024, 4096)
FORMS: dict[Form, Keep] = {"textbook": "xhat", "blocked": "x", "fused": "x"}
"""Forms, and the array that each saves for backward."""
READ, WRITTEN = {"facecolor": PALE_BLUE}, {"facecolor": ORANGE, "hatch": "///"}
"""Bars and boxes that differ without colour."""


def cost() -> None:
    """Draw the bytes of each form, read and written, both passes to the same scale."""
    figure = canvas(5.6, 4.6)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, direction in zip(panels, DIRECTIONS, strict=True):
        for place, (form, keep) in enumerate(FORMS.items()):
            moved = layer_norm_cost(COST_SHAPE, "float32", form, keep).passes[direction]
            left = 0.0
            for name, style in (("read", READ), ("written", WRITTEN)):
                width = getattr(moved, f"bytes_{name}") / math.prod(COST_SHAPE)
                label = name if place == 0 else None
                axes.barh(place, width, 0.7, left, edgecolor="black", label=label, **style)
                left += width
            axes.text(left + 1, place, f"{left:.0f}", va="center", fontsize=13)
        axes.set_yticks(range(len(FORMS)), list(FORMS), fontsize=13)
        axes.invert_yaxis()
        axes.set_title(direction, loc="left", fontsize=14)
        without_frame(axes)
    panels[0].legend(loc="lower right", fontsize=13, frameon=False)
    panels[1].set_xlabel("bytes per element, float32", fontsize=13)
    panels[1].tick_params(axis="x", labelsize=12)
    panels[1].set_xlim(0, 95)
    save_as(figure, "cost")


BOX, CODE = 1.35, 3.15
"""Widths of a box and of the code between boxes."""


def fusion() -> None:
    """Draw the arrays that each unfused kernel and each fused one moves."""
    small = {*ROWS, *COLUMNS, *SHARES}
    figure = canvas(5.6, 8.2)
    axes = figure.subplots()
    for x, text in ((-BOX, "read"), (CODE / 2, "kernel"), (CODE + BOX / 2, "written")):
        axes.text(x, 0, text, ha="center", va="center", fontsize=12, style="italic")
    y = -1.0
    for direction, fused in (("forward", ["x"]), ("backward", ["dy", "x"])):
        steps = operations(f"layer_norm {direction}", "t")
        kernels = [
            ([each for each in step.reads if each not in small], step.writes, step.code)
            for step in steps
            if not {*step.reads, step.writes} <= small
        ]
        arrays = sum(len(reads) + (writes not in small) for reads, writes, _ in kernels)
        y = fusion_title(axes, y, f"{direction}, unfused: {arrays} arrays, {len(kernels)} kernels")
        for reads, writes, code in kernels:
            y = fusion_kernel(axes, y, reads, [] if writes in small else [writes], code)
        y = fusion_title(axes, y - 0.2, f"{direction}, fused: {len(fused) + 1} arrays")
        y = fusion_kernel(axes, y, fused, ["y" if direction == "forward" else "dx"], "all steps")
        y -= 0.5
    axes.set_xlim(-2 * BOX - 0.1, CODE + BOX + 0.1)
    axes.set_ylim(y + 0.9, 0.6)
    axes.set_axis_off()
    save_as(figure, "fusion")


def fusion_title(axes: Axes, y: float, text: str) -> float:
    """Write a heading; return the height below it."""
    axes.text(-2 * BOX, y, text, fontsize=12.5, weight="bold", va="center")
    return y - 1


def fusion_kernel(axes: Axes, y: float, reads: list[str], writes: list[str], code: str) -> float:
    """Draw a kernel between the arrays it reads and writes; return the height below it."""
    boxes = [(-BOX * (k + 1), name, PALE_BLUE) for k, name in enumerate(reversed(reads))]
    boxes += [(CODE, name, PALE_ORANGE) for name in writes]
    for x, name, colour in boxes:
        corner = (x + 0.03, y - 0.4)
        axes.add_patch(Rectangle(corner, BOX - 0.06, 0.8, facecolor=colour, edgecolor="black"))
        text = name.strip("()")
        axes.text(x + BOX / 2, y, text, ha="center", va="center", fontsize=12)
    short = code.replace("axis=-1", "").replace("axis=rows", "rows")
    axes.text(CODE / 2, y, short, ha="center", va="center", fontsize=12)
    return y - 1


SLOPES = (
    "one-pass", "two-pass (textbook)", "pair mean", "textbook in float64 then cast", "truenorm",
)  # fmt: skip
"""An algorithm of each slope, and what is correct."""


def stability() -> None:
    """Draw y in float32, and the variance beside y with the corrected two-pass form."""
    report = from_json((RESULTS / "stability.json").read_text(encoding="utf-8"))
    sweep = next(each for each in report.sweeps if each.dtype == "float32")
    save_as(draw([sweep], ["y"], SLOPES), "error-against-offset")
    figure = draw([sweep], ["variance", "y"], [*SLOPES[:2], "corrected two-pass", *SLOPES[2:]])
    save_as(figure, "variance-and-y")


def taylor() -> None:
    """Draw the Taylor remainders of three backward passes."""
    tests = read_results(RESULTS / "gradient_methods.json")["taylor"]
    figure = canvas(5.6, 5.0)
    axes = figure.add_subplot()
    for (name, test), colour, marker in zip(tests.items(), (BLUE, RED, GREY), "os^", strict=True):
        relative = [r / h for r, h in zip(test["remainders"], test["steps"], strict=True)]
        label = f"{name}: level {test['level']:.0e}"
        axes.loglog(test["steps"], relative, color=colour, marker=marker, ms=5, label=label)
    steps, remainders = (tests["truenorm"][name] for name in ("steps", "remainders"))
    second = [remainders[0] / steps[0] ** 2 * h for h in steps]
    axes.loglog(steps, second, "k:", lw=1, label="order 2")
    axes.set_xlabel("step h / spread of the inputs", fontsize=13)
    axes.set_ylabel("R(h)/h, relative to the gradient", fontsize=13)
    axes.set_title("layer norm, x = 1e8 + 1e-3 N(0,1), D = 16", loc="left", fontsize=13)
    axes.tick_params(labelsize=12)
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.set_ylim(top=1e3)
    axes.invert_xaxis()
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", fontsize=12, frameon=False)
    save_as(figure, "taylor")


# Boxes: colour, x, y, width and text. Arrows: numbers of two boxes, and words beside the arrow.
MEMORY, DEVICE, FALLBACK, HOST = PALE_GREY, PALE_BLUE, PALE_GREEN, PALE_ORANGE
Box = tuple[str, float, float, float, str]
FORWARD: tuple[Box, ...] = (
    (MEMORY, 2.95, 9.4, 5.8, "global memory: x, D elements"),
    (DEVICE, 2.95, 8.1, 5.8, "registers of a team: 16 bytes at a load,\n8 elements a thread; "
     "beyond 16 a thread\nthe row is read again, from a cache"),
    (DEVICE, 2.95, 6.7, 5.8, "sum 1, of x - x₀: near,\na float32 next to the mean"),
    (DEVICE, 2.95, 5.3, 5.8, "sums 2 and 3, of d = x - near and d²,\nfloat64: low, v, "
     "r = 1/√(v + eps)"),
    (DEVICE, 2.95, 3.9, 5.8, "z = ((x - near) - low)·(r·gamma) + beta\nand its bound E, float64"),
    (DEVICE, 2.95, 2.5, 5.8, "z - E and z + E rounded:\nsame bits?"),
    (MEMORY, 2.95, 1.0, 5.8, "global memory: y"),
    (MEMORY, 8.3, 5.3, 3.3, "near, low, v:\n24 bytes a row"),
    (MEMORY, 8.3, 2.5, 3.3, "row status:\nundecided"),
    (HOST, 8.3, 1.0, 3.3, "the host reads the\nstatus: the one wait\nof correct mode"),
    (FALLBACK, 8.3, -0.5, 3.3, "forward_tier2: the\nrow in double-double"),
    (HOST, 8.3, -2.0, 3.3, "rows still undecided\nor not finite:\nNumPy, and integers"),
)  # fmt: skip
FORWARD_ARROWS = "0>1; 1>2; 2>3; 3>4; 4>5; 5>6 yes or no: the lower end; 3>7; 5>8 no; 8>9; 9>10; \
10>11 few"
BACKWARD: tuple[Box, ...] = (
    (MEMORY, 2.4, 9.4, 4.7, "global memory: dy, x;\nnear, low, v"),
    (DEVICE, 2.4, 8.0, 4.7, "a team takes the rows of a\nrun (16, or 64 if D ≤ 1024),\n"
     "and reads each twice"),
    (DEVICE, 2.4, 6.6, 4.7, "four sums over a row,\nat once, float64:\ng·c, g², c, g"),
    (DEVICE, 2.4, 5.2, 4.7, "z = r·((g - mean g) - c·q),\nits bound,\nboth ends rounded"),
    (MEMORY, 2.4, 3.8, 4.7, "global memory: dx;\nrow status"),
    (HOST, 2.4, 2.4, 4.7, "the host reads the row\nstatus, and flags of\nundecided columns"),
    (FALLBACK, 2.4, 1.0, 4.7, "undecided rows:\nbackward_tier2; undecided\n"
     "columns: columns_tier2"),
    (DEVICE, 7.6, 5.2, 4.7, "sums over the run, registers:\ndy·xhat (float64), its bound\n"
     "(float32), dy (float64)"),
    (MEMORY, 7.6, 3.8, 4.7, "global memory: the sums of\neach run, 20 bytes a column"),
    (DEVICE, 7.6, 2.4, 4.7, "column_sums: runs in order,\nas pairs"),
    (DEVICE, 7.6, 1.0, 4.7, "round_dgamma,\nround_dbeta"),
    (FALLBACK, 7.6, 6.8, 4.7, "D > 4096: no registers for\nthat; the kernel run_sums\n"
     "reads dy and x again"),
)  # fmt: skip
BACKWARD_ARROWS = "0>1; 1>2; 2>3; 3>4; 4>5; 5>6; 3>7; 11>7; 7>8 each run; 8>9; 9>10"


def gpu() -> None:
    """Draw both passes of the GPU kernels."""
    for name, boxes, arrows in (
        ("gpu-forward", FORWARD, FORWARD_ARROWS),
        ("gpu-backward", BACKWARD, BACKWARD_ARROWS),
    ):
        bottom = min(y for _, _, y, _, _ in boxes) - 0.6
        figure = canvas(5.6, 0.62 * (9.9 - bottom))
        axes = figure.subplots()
        heights = [(0.65, 0.85, 1.05)[text.count("\n")] for *_, text in boxes]
        for (colour, x, y, w, text), h in zip(boxes, heights, strict=True):
            rounded_box(axes, (x, y), (w, h), colour, text, 10.5)
        for a, b, words in re.findall(r"(\d+)>(\d+) ?([^;]*)", arrows):
            (_, x, y, w, _), (_, to_x, to_y, to_w, _) = boxes[int(a)], boxes[int(b)]
            if vertical := x == to_x:
                down = 1 if y > to_y else -1
                y, to_y = y - down * heights[int(a)] / 2, to_y + down * heights[int(b)] / 2
            else:
                x, to_x = x + w / 2, to_x - to_w / 2
            style = {"arrowstyle": "-|>", "color": "#333333", "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", xy=(to_x, to_y), xytext=(x, y), arrowprops=style)
            x, y = (x + to_x) / 2, (y + to_y) / 2
            if vertical:
                axes.text(x + 0.12, y, words, ha="left", va="center", fontsize=10)
            else:
                axes.text(x, y + 0.13, words, ha="center", va="bottom", fontsize=10)
        axes.set_xlim(0, 10)
        axes.set_ylim(bottom, 9.9)
        axes.set_axis_off()
        save_as(figure, name)


PATHS = {"mean": RED, "direct": BLUE, "variance": GREEN}


def paths() -> None:
    """Draw the three paths of the second element of a row, with their contributions to dx."""
    c, g, rstd = np.array([-7.0, -1.0, 1.0, 7.0]), np.array([1.0, 4.0, -2.0, 3.0]), 0.2
    dvar, dmean = -0.5 * rstd**3 * (g * c).sum(), -rstd * g.sum()
    contributions = {
        "mean": ("dμ / D", dmean / 4),
        "direct": ("r · g", rstd * g[1]),
        "variance": ("2c · dv / D", 2 * c[1] / 4 * dvar),
    }
    total = sum(value for _, value in contributions.values())
    figure = canvas(4.6, 4.4)
    axes = figure.subplots()

    def box(x: float, y: float, width: float, colour: str, text: str) -> None:
        rounded_box(axes, (x, y), (width, 0.54), colour, text, 12)

    def arrow(x: float, start: float, end: float, colour: str) -> None:
        style = {"arrowstyle": "-|>", "color": colour, "lw": 2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=(x, end), xytext=(x, start), arrowprops=style)

    for x, (name, colour) in zip((0.85, 2.5, 4.15), PATHS.items(), strict=True):
        formula, value = contributions[name]
        if name == "direct":
            arrow(x, 4.93, 1.67, colour)
        else:
            arrow(x, 4.93, 4.27, colour)
            box(x, 4.0, 1.3, "white", name)
            arrow(x, 3.73, 1.67, colour)
        axes.text(
            x, 2.85, f"{formula}\n{value:g}".replace("-", "\N{MINUS SIGN}"),
            ha="center", va="center", fontsize=12, linespacing=1.4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 3},
        )  # fmt: skip
    box(2.5, 5.2, 4.6, PALE_GREY, f"x = 7, dx = {total:g}")
    box(2.5, 1.4, 4.6, PALE_GREY, "xhat")
    arrow(2.5, 1.13, 0.77, "#333333")
    box(2.5, 0.5, 4.6, PALE_GREY, "y, loss")
    axes.set_xlim(0, 5)
    axes.set_ylim(0.15, 5.55)
    axes.set_axis_off()
    save_as(figure, "paths")


CONTRACTS = {
    "layers": {
        "layers": "truenorm",
        "backends": "truenorm/kernels",
        "verify-layers": "truenorm/verify",
    },
    "grading": {"grading-layers": "truenorm/verify/grading"},
}
"""By drawing: contracts, and the folders whose layers they define."""
MODULES = dict.fromkeys(("ranks", "partials", "api", "devices", "kernels", "threads"), PALE_BLUE)
MODULES |= dict.fromkeys(("verify", "gradient_check"), PALE_ORANGE)


def layers_of(contract: str) -> list[list[str]]:
    """Return the modules of each layer, the highest layer first."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["id"] == contract)
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def layers() -> None:
    """Draw a row of boxes for each layer of each contract."""
    _draw_layers(
        "layers",
        "A module imports only modules in layers below its own.\n"
        "Blue computes, orange judges; neither imports the other.",
    )
    _draw_layers("grading", "A stage imports only stages in layers below its own.")


def _draw_layers(name: str, caption: str) -> None:
    drawn = {folder: layers_of(contract) for contract, folder in CONTRACTS[name].items()}
    heights = [len(each) + 1 for each in drawn.values()]
    figure = canvas(5.6, 0.3 * sum(heights) + 0.6)
    places = figure.subplots(len(drawn), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, (folder, layers) in zip(places, drawn.items(), strict=True):
        parts = (MODULES[part] for part in Path(folder).parts if part in MODULES)
        colour = next(parts, PALE_GREY)
        for height, layer in enumerate(reversed(layers)):
            width, size = 1 / len(layer), 12 if len(layer) < 4 else 9.3
            for k, module in enumerate(layer):
                axes.barh(
                    height, width - 0.01, left=k * width, height=0.88,
                    color=MODULES.get(module, colour), edgecolor="#666666", linewidth=0.6,
                )  # fmt: skip
                middle = (k + 0.5) * width - 0.005
                axes.text(middle, height, module, ha="center", va="center", fontsize=size)
        axes.set_title(folder, fontsize=13, loc="left")
        axes.margins(0.01)
        axes.set_axis_off()
    figure.supxlabel(caption, fontsize=11)
    save_as(figure, name)


PEER_STYLES: dict[str, dict[str, Any]] = {
    "textbook in float64, then cast": {"color": "#a8508a", "marker": "^", "ls": ":"},
    "textbook NumPy": {"color": "#b84a00", "marker": "s", "ls": "-."},
    "JAX": {"color": "#007a5a", "marker": "P", "ls": "--"},
    "ONNX Runtime": {"color": "#8a5a00", "marker": "X", "ls": "--"},
    "truenorm correct, out=": {"color": BLUE, "marker": "o", "lw": 2.2},
    "truenorm fast, out=": {"color": "#2a7fb0", "marker": "D", "lw": 2.2, "mfc": "white"},
}
"""Contestants of the figure; the tables of the page have all."""
PEER_NAMES = {"textbook in float64, then cast": "float64, then cast", "textbook NumPy": "textbook"}


def peers() -> None:
    """Draw times divided by PyTorch's over the shapes, with a name beside each line."""
    report = read_results(RESULTS / "peers.json")
    figure = canvas(5.8, 7.4)
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    for direction, axes in zip(DIRECTIONS, panels, strict=True):
        times, ends = times_of(report, direction), {"PyTorch": (1.0, "black")}
        axes.set(yscale="log", xlim=(-0.3, len(times) - 0.8))
        for name, style in PEER_STYLES.items():
            if name in next(iter(times.values())):
                ratios = [taken[name] / taken["PyTorch"] for taken in times.values()]
                axes.plot(list(times), ratios, ms=6, label=name, **style)
                short = PEER_NAMES.get(name, name.removesuffix(", out="))
                ends[short] = (ratios[-1], style["color"])
        axes.axhline(1, color="black", lw=1.5)
        axes.set_yticks([0.2, 0.5, 1, 2, 5, 10, 20, 50, 100])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.tick_params(labelsize=11)
        axes.set_title(f"{direction}: time, PyTorch = 1", loc="left", fontsize=13)
        axes.grid(alpha=0.3)
        without_frame(axes)
        name_ends(axes, ends)
    for tick in panels[1].get_xticklabels():
        tick.set(rotation=50, horizontalalignment="right", rotation_mode="anchor")
    facts, quiet = report["machine"], "" if report["quiet"] else ", not quiet"
    label = f"shape of x, float32\n{facts['cores']} cores{quiet}, {facts['date']}"
    panels[1].set_xlabel(label, fontsize=12)
    save_as(figure, "peers")


RECIPES = {
    "RMSNorm with 1 + gamma": (
        norm("rms_norm", gain="zero-centred"),
        ("late", "early", "gain-rounded", "early, gain-rounded", "none"),
    ),
    "layer norm": (LAYER_NORM, ("late", "early", "product", "apex", "none")),
    "residual add and RMSNorm": (
        norm("add_rms_norm"),
        ("late", "early", "late, of the unrounded sum", "early, of the unrounded sum"),
    ),
}
"""Operations, and the recipes whose bits are compared."""


def recipes() -> None:
    """Draw the percentage of elements in which two recipes differ, a triangle an operation."""
    family = Family("normal", PLAIN_X[0], "ordinary", "standard normal rows")
    figure = canvas(5.6, 12)
    places = figure.subplots(len(RECIPES), 1)
    for axes, (title, (operation, names)) in zip(places, RECIPES.items(), strict=True):
        case = family.case(LAYER_NORM if operation.centred else RMS_NORM, "bfloat16", 64, 4096)
        own = case if operation is operation.plain else adapt_case(operation, case)
        bits = recipe_results(operation, own, {})
        shares = np.array(
            [[np.mean(bits[one].values != bits[other].values) for other in names] for one in names]
        )
        shown = np.ma.masked_where(np.triu(np.ones_like(shares)) > 0, shares)
        axes.imshow(shown[1:, :-1], cmap="Blues", vmin=0, vmax=0.7)
        for i, row in enumerate(shares[1:], start=1):
            for j, share in enumerate(row[:i]):
                colour = "white" if share > 0.4 else "black"
                text = f"{100 * share:.0f} %"
                axes.text(j, i - 1, text, ha="center", va="center", color=colour, fontsize=13)
        wrapped = [
            name.replace(", ", ",\n").replace("of the unrounded", "unrounded") for name in names
        ]
        axes.set_xticks(range(len(names) - 1), wrapped[:-1], rotation=40, ha="right")
        axes.set_yticks(range(len(names) - 1), wrapped[1:])
        axes.set_title(title, fontsize=14, pad=10)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=12)
    save_as(figure, "recipes")


def roofline() -> None:
    """Draw the three limits of each card, in correct mode."""
    cards, colours = roofline_model.CARDS, ("#999999", RED, GREEN)
    figure = canvas(5.6, 10.5)
    places = figure.subplots(4, 1, sharex=True)
    panels = product(roofline_model.PASSES, roofline_model.TYPES)
    for axes, (direction, kind) in zip(places, panels, strict=True):
        for place, card in enumerate(cards.values()):
            times = roofline_model.limits(card, "correct", direction, kind)
            for k, (name, limit) in enumerate(times.items()):
                axes.barh(
                    place + 0.25 * (k - 1), limit, height=0.22, color=colours[k],
                    label=name if place == 0 else None,
                )  # fmt: skip
                if limit == max(times.values()):
                    middle = place + 0.25 * (k - 1)
                    axes.text(limit + 0.1, middle, f"{limit:.1f}", va="center", fontsize=12)
        axes.axvline(1, color="black", linestyle=":", linewidth=1.2)
        axes.set_yticks(range(len(cards)), list(cards))
        axes.set_ylim(len(cards) - 0.45, -0.55)
        axes.set_xlim(0, 7.6)
        axes.set_title(f"{direction}, {kind}", loc="left", fontsize=13)
        axes.tick_params(labelsize=12)
        without_frame(axes)
    places[0].legend(loc="upper right", fontsize=12, frameon=False)
    places[3].set_xlabel(
        "Time of each resource, copy = 1 (dotted); correct mode.\n"
        "Computed, not measured; the longest time decides.",
        fontsize=11,
    )
    save_as(figure, "roofline")


SCALE_LINES = {
    "exact_by_layer": ("exact, layer by layer", RED, "-"),
    "plain_by_layer": ("float32, layer by layer", RED, "--"),
    "exact": ("exact, one bucket", BLUE, "-"),
    "plain": ("float32, one bucket", BLUE, "--"),
}
"""Fields of `scale.Times`, with label, colour and style."""


def scale() -> None:
    """Draw the four times from 2 to 10,000 ranks, each with its name at the end."""
    model, network = scale_model.Model(), scale_model.Network()
    ranks = np.unique(np.geomspace(2, 10_000, 60).astype(int)).tolist()
    times = [model.times(count, network) for count in ranks]
    figure = canvas(5.6, 4.8)
    axes, ends = figure.subplots(), {}
    for name, (label, colour, style) in SCALE_LINES.items():
        line = [getattr(each, name) for each in times]
        axes.loglog(ranks, line, style, color=colour, linewidth=1.8)
        ends[label] = (line[-1], colour)
    axes.set_xlim(2, 10_000)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(labelsize=12)
    axes.set_xlabel("ranks", fontsize=12)
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    without_frame(axes)
    axes.set_title(
        "ms of a step, by the model: dgamma and dbeta\n"
        f"of {model.norms} norms of {model.columns} columns; "
        f"{network.bandwidth / 1e9:.0f} GB/s, {network.latency * 1e6:.0f} µs",
        loc="left",
        fontsize=12,
    )
    name_ends(axes, ends)
    save_as(figure, "scale")


DRAWN = {
    each.__name__: each
    for each in (
        *(cost, fusion, gpu, layers, paths, peers, recipes, roofline, scale),
        *(stability, taylor),
    )
}


def main(argv: list[str] | None = None) -> int:
    """Draw the named figures, or all."""
    parser = options("figures", "Draw figures of the docs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(DRAWN)}; or all")
    for name in parser.parse_args(argv).names or DRAWN:
        with mpl.rc_context({"font.size": 10}):
            DRAWN[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
