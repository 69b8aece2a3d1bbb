"""Figures. This module needs Matplotlib."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

GAP = 0.085
"""Least distance between two names, relative to the height of the axes."""


def name_ends(axes: Axes, ends: Mapping[str, tuple[float, str]], size: float = 11) -> None:
    """Write names beside the right ends of lines, given height and colour, without overlaps.

    Call it after the limits and scales of the axes are set.
    """
    scale = axes.transScale + axes.transLimits
    exact = {name: float(scale.transform((1.0, y))[1]) for name, (y, _) in ends.items()}
    order = sorted(exact, key=exact.__getitem__)
    heights = [exact[name] for name in order]
    for k in range(1, len(heights)):
        heights[k] = max(heights[k], heights[k - 1] + GAP)
    ceiling = 1.0
    for k in reversed(range(len(heights))):
        heights[k] = min(heights[k], ceiling)
        ceiling = heights[k] - GAP
    for name, height in zip(order, heights, strict=True):
        colour = ends[name][1]
        axes.annotate(
            name,
            (1.0, exact[name]),
            (1.06, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=colour,
            fontsize=size,
            va="center",
            arrowprops={
                "arrowstyle": "-", "color": colour, "lw": 0.8, "relpos": (0, 0.5),
                "shrinkA": 1, "shrinkB": 0,
            },
            annotation_clip=False,
        )  # fmt: skip


def save(figure: Figure, file: Path) -> None:
    """Write a figure as SVG, or as PNG for any other suffix. Equal figures give equal files."""
    kind = "svg" if file.suffix.lower() == ".svg" else "png"
    # Text stays text, and the salt makes the ids within the file reproducible.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "truenorm"}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=150, metadata=metadata)
