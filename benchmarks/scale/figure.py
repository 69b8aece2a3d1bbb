"""Draw what the model says, from 2 to 10,000 ranks."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.scale.model import Model, Network
from truenorm.tools.picture import save

__all__ = ["draw"]

LINES = {  # colours of Okabe and Ito, which remain distinct for the colour-blind
    "exact_by_layer": ("exact, layer by layer", "#d55e00", "-"),
    "plain_by_layer": ("float32, layer by layer", "#d55e00", "--"),
    "exact": ("exact, one bucket", "#0072b2", "-"),
    "plain": ("float32, one bucket", "#0072b2", "--"),
}
"""Fields of `Times`, and how each is drawn."""


def draw(model: Model, network: Network, file: Path) -> None:
    """Draw four lines, each with its name at the end."""
    ranks = np.unique(np.geomspace(2, 10_000, 60).astype(int)).tolist()
    times = [model.times(count, network) for count in ranks]
    with mpl.rc_context({"font.size": 10}):
        figure = Figure(figsize=(7.4, 4.2), layout="constrained", facecolor="white")
        axes = figure.subplots()
        for name, (label, colour, style) in LINES.items():
            line = [getattr(each, name) for each in times]
            axes.loglog(ranks, line, style, color=colour, linewidth=1.8)
            axes.text(ranks[-1] * 1.15, line[-1], label, color=colour, va="center", fontsize=9)
        axes.set_xlim(2, 10_000)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("ranks")
        axes.set_ylabel("ms of a step, by the model")
        axes.grid(which="major", color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(
            f"dgamma and dbeta of {model.norms} norms of {model.columns} columns; "
            f"{network.bandwidth / 1e9:.0f} GB/s, {network.latency * 1e6:.0f} µs",
            loc="left",
            fontsize=10,
        )
        save(figure, file)
