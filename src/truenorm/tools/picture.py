"""Pictures by Matplotlib, which whoever imports this needs."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

__all__ = ["save"]


def save(figure: Figure, file: Path) -> None:
    """Write a figure as SVG or, if its suffix is another, as PNG; the same data, the same file."""
    kind = "svg" if file.suffix.lower() == ".svg" else "png"
    # Text stays text, and the salt makes the names within the file the same each time.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "truenorm"}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=150, metadata=metadata)
