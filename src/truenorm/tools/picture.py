"""Figures. This module needs Matplotlib."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure


def save(figure: Figure, file: Path) -> None:
    """Write a figure as SVG, or as PNG for any other suffix. Equal figures give equal files."""
    kind = "svg" if file.suffix.lower() == ".svg" else "png"
    # Text stays text, and the salt makes the ids within the file reproducible.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "truenorm"}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=150, metadata=metadata)
