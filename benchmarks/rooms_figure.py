"""``python -m benchmarks.rooms_figure``: draw docs/figures/rooms.svg.

The floors are those of the contracts in pyproject.toml, which the gate enforces: a room imports
from floors below its own. It needs Matplotlib (the dependency group "figures").
"""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from truenorm.tools.picture import save

ROOT = Path(__file__).resolve().parents[1]
FIGURE = ROOT / "docs" / "figures" / "rooms.svg"
HOUSES = {"floors": "truenorm", "backends": "truenorm/kernels", "wings": "truenorm/verify"}
"""Contracts, and the folders whose floors they say."""
COMPUTES, JUDGES, PLAIN = "#bfdcec", "#fbe0b3", "#eeeeee"  # of Okabe and Ito, lightened
COLOURS = dict.fromkeys(
    ("ranks", "partials", "ops", "dispatch", "devices", "kernels", "threads"), COMPUTES
)
COLOURS |= dict.fromkeys(("verify", "gradient_check"), JUDGES)


def floors_of(contract: str) -> list[list[str]]:
    """Return the rooms of each floor, the highest first; planned ones are left out."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["id"] == contract)
    rooms = ([name.strip() for name in layer.split("|")] for layer in layers)
    return [[name for name in floor if not name.startswith("(")] for floor in rooms]


def draw(axes: Axes, folder: str, floors: Sequence[Sequence[str]]) -> None:
    """Draw a house: a row of boxes for each floor."""
    of_house = COLOURS.get(Path(folder).name, PLAIN)
    for level, floor in enumerate(reversed(floors)):
        width = 1 / len(floor)
        for k, room in enumerate(floor):
            axes.barh(
                level, width - 0.01, left=k * width, height=0.88,
                color=COLOURS.get(room, of_house), edgecolor="#666666", linewidth=0.6,
            )  # fmt: skip
            size = 9 if len(floor) < 4 else 6.5
            axes.text(
                (k + 0.5) * width - 0.005, level, room, ha="center", va="center", fontsize=size
            )
    axes.set_title(folder, fontsize=10, loc="left")
    axes.set_axis_off()


def main() -> int:
    """Draw and save."""
    houses = {folder: floors_of(contract) for contract, folder in HOUSES.items()}
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    places = figure.subplots(1, len(houses), width_ratios=(1.4, 1.15, 0.95))
    for axes, (folder, floors) in zip(places, houses.items(), strict=True):
        draw(axes, folder, floors)
    figure.supxlabel(
        "A room imports from floors below its own, never upwards or sideways. "
        "Blue computes, orange judges, and neither imports the other.",
        fontsize=8,
    )
    save(figure, FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
