"""``python -m benchmarks.layers_figure``: draw docs/figures/layers.svg.

The layers are those of the import contracts in pyproject.toml. It needs Matplotlib (the
dependency group "figures").
"""

import sys
import tomllib
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from truenorm.tools.picture import save

ROOT = Path(__file__).resolve().parents[1]
FIGURE = ROOT / "docs" / "figures" / "layers.svg"
CONTRACTS = {
    "layers": "truenorm",
    "backends": "truenorm/kernels",
    "verify-layers": "truenorm/verify",
}
"""Contracts, and the folders whose layers they define."""
COMPUTES, JUDGES, OTHER = "#bfdcec", "#fbe0b3", "#eeeeee"  # of Okabe and Ito, lightened
COLOURS = dict.fromkeys(("ranks", "partials", "api", "devices", "kernels", "threads"), COMPUTES)
COLOURS |= dict.fromkeys(("verify", "gradient_check"), JUDGES)


def layers_of(contract: str) -> list[list[str]]:
    """Return the modules of each layer, the highest layer first."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["id"] == contract)
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def draw(axes: Axes, folder: str, layers: list[list[str]]) -> None:
    """Draw a row of boxes for each layer."""
    colour = COLOURS.get(Path(folder).name, OTHER)
    for height, layer in enumerate(reversed(layers)):
        width = 1 / len(layer)
        for k, module in enumerate(layer):
            axes.barh(
                height, width - 0.01, left=k * width, height=0.88,
                color=COLOURS.get(module, colour), edgecolor="#666666", linewidth=0.6,
            )  # fmt: skip
            middle, size = (k + 0.5) * width - 0.005, 9 if len(layer) < 4 else 6.5
            axes.text(middle, height, module, ha="center", va="center", fontsize=size)
    axes.set_title(folder, fontsize=10, loc="left")
    axes.set_axis_off()


def main() -> int:
    """Draw and save."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    places = figure.subplots(1, len(CONTRACTS), width_ratios=(1.4, 1.15, 0.95))
    for axes, (contract, folder) in zip(places, CONTRACTS.items(), strict=True):
        draw(axes, folder, layers_of(contract))
    figure.supxlabel(
        "A module imports only modules in layers below its own. "
        "Blue computes, orange judges, and neither imports the other.",
        fontsize=8,
    )
    save(figure, FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
