"""``python -m benchmarks.recipes_figure``: draw docs/figures/recipes.svg.

In how many elements of 64 rows of 4096 standard normal bfloat16 numbers two recipes differ, by the
judge's own bits of each. It needs Matplotlib and ml_dtypes (the dependency group "tests-bare").
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from truenorm.tools.picture import save
from truenorm.verify.cases.families import PLAIN_X, Family
from truenorm.verify.operations import LAYER_NORM, RMS_NORM, norm
from truenorm.verify.operations.norms import Norm
from truenorm.verify.operations.recipes import recipe_results
from truenorm.verify.operations.variants import adapt_case
from truenorm.verify.types import Float64s

ROOT = Path(__file__).resolve().parents[1]
FIGURE = ROOT / "docs" / "figures" / "recipes.svg"
ROWS, SIZE = 64, 4096
FAMILY = Family("normal", PLAIN_X[0], "ordinary", "standard normal rows")
PANELS = {
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


def different(operation: Norm, names: tuple[str, ...]) -> Float64s:
    """Return the share of elements in which each two recipes differ."""
    plain = LAYER_NORM if operation.centred else RMS_NORM
    case = FAMILY.case(plain, "bfloat16", ROWS, SIZE)
    bits = recipe_results(operation, adapt_case(operation, case) if operation.is_variant else case)
    return np.array(
        [[np.mean(bits[one].values != bits[other].values) for other in names] for one in names]
    )


def draw(axes: Axes, title: str, names: tuple[str, ...], shares: Float64s) -> None:
    """Draw a triangle of percentages."""
    shown = np.ma.masked_where(np.triu(np.ones_like(shares)) > 0, shares)
    axes.imshow(shown[1:, :-1], cmap="Blues", vmin=0, vmax=0.7)
    for i, row in enumerate(shares[1:], start=1):
        for j, share in enumerate(row[:i]):
            colour = "white" if share > 0.4 else "black"
            axes.text(j, i - 1, f"{100 * share:.0f} %", ha="center", va="center", color=colour)
    wrapped = [
        name.replace(", ", ",\n").replace("of the unrounded", "unrounded") for name in names
    ]
    axes.set_xticks(range(len(names) - 1), wrapped[:-1], rotation=40, ha="right")
    axes.set_yticks(range(len(names) - 1), wrapped[1:])
    axes.set_title(title, fontsize=11, pad=10)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def main() -> int:
    """Draw how often recipes differ."""
    mpl.rcParams["font.size"] = 10
    figure = Figure(figsize=(12.6, 4.2), layout="constrained")
    for axes, (title, (operation, names)) in zip(
        figure.subplots(1, len(PANELS)), PANELS.items(), strict=True
    ):
        draw(axes, title, names, different(operation, names))
    save(figure, FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
