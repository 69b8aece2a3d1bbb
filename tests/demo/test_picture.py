"""The figures show every contestant, and what is no number at the top."""

import math

import numpy as np
import pytest

from demo.reports import ROOT, committed
from truenorm.demo.algorithms import ALGORITHMS, contestants
from truenorm.demo.picture import LINES, TOP, draw, draw_one
from truenorm.demo.report import Curve, Sweep

FLOAT32, FLOAT64 = committed().sweeps


def drawn(figure_of: Sweep, output: str) -> dict[str, list[float]]:
    lines = draw_one(figure_of, output).axes[0].get_lines()
    return {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in lines}


def test_errors_are_where_they_belong() -> None:
    found = drawn(FLOAT32, "y")
    assert set(ALGORITHMS) <= set(found)
    for name, curve in FLOAT32.of("y").items():
        assert found[name] == [each if each < TOP else TOP for each in curve.relative]


def test_what_is_no_number_is_at_the_top_and_named() -> None:
    curve = Curve("Welford", "y", [0.1, math.inf, math.nan], [1, 1, 1], 1.0)
    sweep = Sweep("float32", 2.0**-24, [1.0, 10.0, 100.0], [curve])
    assert drawn(sweep, "y")["Welford"] == [0.1, TOP, TOP]
    notes = [each.get_text() for each in draw_one(sweep, "y").axes[0].texts]
    assert "nan" in notes


def test_lines_differ_without_their_colours() -> None:
    assert list(LINES) == list(ALGORITHMS)
    looks = {(each["marker"], each.get("ms"), each.get("mfc")) for each in LINES.values()}
    assert len(looks) == len({each["color"] for each in LINES.values()}) == len(LINES)


@pytest.mark.parametrize("sweeps", [[FLOAT32], [FLOAT64], [FLOAT32, FLOAT64]])
def test_a_panel_for_each_output_and_a_name_for_each_line(sweeps: list[Sweep]) -> None:
    figure = draw(sweeps)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        f"{output}, {sweep.dtype}"
        for sweep in sweeps
        for output in ("variance", "y", "dx", "dgamma")
    ]
    (legend,) = figure.legends
    named = [each.get_text() for each in legend.get_texts()]
    assert named == list(contestants(sweeps[0].dtype))
    assert all(axes.get_xscale() == axes.get_yscale() == "log" for axes in figure.axes)


@pytest.mark.parametrize(
    "name", ["error-against-offset.svg", "stability-float32.svg", "stability-float64.svg"]
)
def test_committed_figures_have_text_and_a_ground(name: str) -> None:
    """Text can be searched and read aloud; the white ground is for dark pages."""
    svg = (ROOT / "docs" / "figures" / name).read_text(encoding="utf-8")
    dtype = "float64" if "64" in name else "float32"
    for algorithm in contestants(dtype):
        assert f">{algorithm}</text>" in svg
    assert "fill: #ffffff" in svg
