"""Pictures by Matplotlib, which whoever imports this needs."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

__all__ = ["save"]


def save(figure: Figure, file: Path) -> None:
    """Write a figure as SVG or PNG, by its suffix; the same data gives the same file."""
    kind = file.suffix.lstrip(".").lower()
    # Text stays text, and the salt makes the names within the file the same each time.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "truenorm"}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=150, metadata=metadata)
