"""``python -m benchmarks.peers_figure``: docs/figures/peers.svg and the tables of docs/speed.md.

It reads what ``python -m benchmarks.peers`` wrote, and needs Matplotlib (the dependency group
"figures"). On the page, what stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is
replaced.
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.pages import filled, markdown_table
from truenorm.tools.picture import save
from truenorm.tools.text import three_digits

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "peers.json"
FIGURE = ROOT / "docs" / "figures" / "peers.svg"
PAGE = ROOT / "docs" / "speed.md"
DIRECTIONS = ("forward", "backward")
OURS = ("truenorm fast, out=", "truenorm correct, out=")
PEERS = {  # what a package is called, and whose versions tell which one it was
    "NumPy": ("textbook", "numpy"),
    "truenorm": ("truenorm", "truenorm"),
    "PyTorch": ("torch", "torch"),
    "JAX": ("jax", "jax"),
    "ONNX Runtime": ("onnxruntime", "onnxruntime"),
    "thinc": ("thinc", "thinc"),
}
# Colours that people with any kind of colour vision tell apart (Okabe and Ito).
STYLES = {
    "truenorm correct, out=": {"color": "#0072b2", "marker": "o", "lw": 2},
    "truenorm correct": {"color": "#0072b2", "marker": "o", "lw": 1, "mfc": "white", "ls": "--"},
    "truenorm fast, out=": {"color": "#56b4e9", "marker": "D", "lw": 2},
    "truenorm fast": {"color": "#56b4e9", "marker": "D", "lw": 1, "mfc": "white", "ls": "--"},
    "textbook NumPy": {"color": "#d55e00", "marker": "s", "lw": 1},
    "textbook in float64, then cast": {"color": "#cc79a7", "marker": "^", "lw": 1},
    "thinc": {"color": "#8c8c8c", "marker": "v", "lw": 1},
    "JAX": {"color": "#009e73", "marker": "P", "lw": 1},
    "ONNX Runtime": {"color": "#e69f00", "marker": "X", "lw": 1},
}
Times = dict[str, dict[str, float]]
"""By shape and contestant: the median, in seconds."""


def times_of(results: dict[str, Any], direction: str) -> Times:
    """Return the medians of one direction."""
    found: Times = {}
    for figure in results["figures"]:
        if figure["direction"] == direction:
            shape = "x".join(map(str, figure["shape"]))
            found.setdefault(shape, {})[figure["contestant"]] = figure["p50"]
    return found


def medians(results: dict[str, Any], direction: str, small: bool) -> str:
    """Return the times of the shapes below 1 MB, or of the others, in ms."""
    megabytes = {
        "x".join(map(str, figure["shape"])): figure["megabytes"] for figure in results["figures"]
    }
    times = {
        shape: taken
        for shape, taken in times_of(results, direction).items()
        if (megabytes[shape] < 1) == small
    }
    names = list(dict.fromkeys(name for taken in times.values() for name in taken))
    return markdown_table(
        [f"{direction}, ms", *times],
        [[name, *(three_digits(taken[name] * 1e3) for taken in times.values())] for name in names],
    )


def beside_the_fastest(results: dict[str, Any]) -> str:
    """Return, for each shape, who else was fastest, and truenorm's times divided by theirs."""
    head = ["shape"]
    rows: dict[str, list[str]] = {}
    for direction in DIRECTIONS:
        head += [f"fastest other, {direction}", "fast", "correct"]
        for shape, taken in times_of(results, direction).items():
            others = {name: t for name, t in taken.items() if not name.startswith("truenorm")}
            best = min(others, key=others.__getitem__)
            ratios = [f"{taken[name] / others[best]:.2f}" for name in OURS]
            rows.setdefault(shape, [shape]).extend([best, *ratios])
    return markdown_table(head, list(rows.values()))


def goals(results: dict[str, Any]) -> str:
    """Return how many of the goals were reached."""
    counts: dict[str, list[bool]] = {}
    for goal in results["goals"]:
        counts.setdefault(goal["goal"], []).append(goal["reached"])
    counts["all"] = [goal["reached"] for goal in results["goals"]]
    return markdown_table(
        ["goal", "reached", "of"],
        [[name, str(sum(reached)), str(len(reached))] for name, reached in counts.items()],
    )


def where(results: dict[str, Any]) -> str:
    """Return machine, versions and date, and whether the machine was quiet."""
    machine, taken = results["machine"], results["cores_taken"]
    packages = ", ".join(
        f"{name} {results['versions'][peer][package]}" for name, (peer, package) in PEERS.items()
    )
    quiet = "The machine was quiet" if results["quiet"] else "**The machine was not quiet**"
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads; Python "
        f"{machine['python']}, {packages}; {machine['date']}. {results['rounds']} rounds, turns "
        f"of {results['seconds_per_turn']} s. {quiet}: other programs took "
        f"{taken['by_other_programs']:.2f} cores during the turns, peers that were to sleep "
        f"{taken['by_other_peers']:.2f}."
    )


def tables(results: dict[str, Any]) -> dict[str, str]:
    """Return everything on the page that comes from the results, by name."""
    blocks = {
        "where": where(results),
        "fastest": beside_the_fastest(results),
        "goals": goals(results),
    }
    for direction in DIRECTIONS:
        blocks[f"{direction} small"] = medians(results, direction, small=True)
        blocks[f"{direction} large"] = medians(results, direction, small=False)
    return blocks


def draw(results: dict[str, Any]) -> Figure:
    """Return the picture: times divided by PyTorch's, over the shapes."""
    figure = Figure(figsize=(7.4, 8.6), facecolor="white", layout="constrained")
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    for direction, axes in zip(DIRECTIONS, panels, strict=True):
        _panel(times_of(results, direction), direction, axes)
    for tick in panels[1].get_xticklabels():
        tick.set(rotation=35, horizontalalignment="right", rotation_mode="anchor")
    panels[1].set_xlabel("shape of x, float32")
    machine = results["machine"]
    quiet = "" if results["quiet"] else ", not quiet"
    figure.suptitle(
        f"Median time of a call, {machine['cores']} cores{quiet}, {machine['date']}", fontsize=11
    )
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _panel(times: Times, direction: str, axes: Axes) -> None:
    axes.set_facecolor("white")
    shapes = list(times)
    for name, style in STYLES.items():
        if name in times[shapes[0]]:
            ratios = [times[shape][name] / times[shape]["PyTorch"] for shape in shapes]
            axes.plot(shapes, ratios, ms=5, label=name, **style)  # type: ignore[arg-type]
    axes.axhline(1, color="black", lw=1.2, label="PyTorch (1)")
    axes.set_yscale("log")
    axes.set_yticks([0.2, 0.5, 1, 2, 5, 10, 20, 50])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_ylabel("time, PyTorch's = 1")
    axes.set_title(f"{direction}: below the black line is faster than PyTorch", fontsize=11)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> int:
    """Draw the picture and fill the page."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    with mpl.rc_context({"font.size": 10}):
        save(draw(results), FIGURE)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables(results)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
