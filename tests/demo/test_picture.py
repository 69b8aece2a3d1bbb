"""The figures show every contestant, and what is no number at the top."""

import math

import numpy as np
import pytest

from demo.reports import ROOT, committed
from truenorm.demo.algorithms import ALGORITHMS, OUTPUTS, contestants
from truenorm.demo.demonstration import Curve, Sweep
from truenorm.demo.page import LINES, TOP, draw

FLOAT32, FLOAT64 = committed().sweeps


def test_what_is_no_number_is_at_the_top_and_named() -> None:
    curve = Curve("Welford", "y", [0.1, math.inf, math.nan], [1, 1, 1], 1.0)
    (axes,) = draw([Sweep("float32", 2.0**-24, [1.0, 10.0, 100.0], [curve])], ["y"]).axes
    assert np.asarray(axes.get_lines()[-1].get_ydata()).tolist() == [0.1, TOP, TOP]
    assert "nan" in [each.get_text() for each in axes.texts]


def test_lines_differ_without_their_colours() -> None:
    assert list(LINES) == list(ALGORITHMS)
    looks = {(each["marker"], each.get("ms"), each.get("mfc")) for each in LINES.values()}
    assert len(looks) == len({each["color"] for each in LINES.values()}) == len(LINES)


@pytest.mark.parametrize("sweeps", [[FLOAT32], [FLOAT64], [FLOAT32, FLOAT64]])
def test_a_panel_for_each_output_and_a_name_for_each_line(sweeps: list[Sweep]) -> None:
    figure = draw(sweeps)
    panels = [(sweep, output) for sweep in sweeps for output in OUTPUTS]
    for axes, (sweep, output) in zip(figure.axes, panels, strict=True):
        assert axes.get_title() == f"{output}, {sweep.dtype}"
        drawn = {
            str(line.get_label()): np.asarray(line.get_ydata()).tolist()
            for line in axes.get_lines()
            if not str(line.get_label()).startswith("_")
        }
        assert drawn == {
            name: [each if each < TOP else TOP for each in curve.relative]
            for name, curve in sweep.of(output).items()
        }
    (legend,) = figure.legends
    named = [each.get_text() for each in legend.get_texts()]
    assert named == list(contestants(sweeps[0].dtype))


@pytest.mark.parametrize(
    "name", ["error-against-offset.svg", "stability-float32.svg", "stability-float64.svg"]
)
def test_committed_figures_have_text_and_a_ground(name: str) -> None:
    """Text can be searched and read aloud; the white ground is for dark pages."""
    svg = (ROOT / "docs" / "figures" / name).read_text(encoding="utf-8")
    for algorithm in contestants("float64" if "64" in name else "float32"):
        assert f">{algorithm}</text>" in svg
    assert "fill: #ffffff" in svg
