"""The plot of error against condition number."""

import dataclasses
import math
import re
from xml.etree import ElementTree as ET

import pytest

from truenorm.verify.operations import OUTPUTS
from truenorm.verify.report.html import VARIABLES, draw
from verify.fake_report import failing_report, sweep

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def markers(svg: str, dtype: str) -> list[tuple[float, float]]:
    """Return where the markers of a type are, from the left and from the top."""
    uses = ET.fromstring(svg).iter(f"{SVG}use")
    return [
        (float(use.attrib["x"]), float(use.attrib["y"]))
        for use in uses
        if f"var(--{dtype})" in use.attrib.get("style", "")
    ]


def test_one_for_each_output_that_has_a_sweep() -> None:
    results = failing_report().results
    assert [plot.output for plot in draw(results)] == list(OUTPUTS)
    assert [plot.output for plot in draw(sweep("float32", "dx"))] == ["dx"]
    assert draw([each for each in results if each.kind != "sweep"]) == []


def test_every_point_is_drawn_in_the_colour_of_its_type() -> None:
    results = sweep("float32", "y") + sweep("float16", "y")
    (plot,) = draw(results)
    assert plot.dtypes == ["float16", "float32"]
    assert len(markers(plot.svg, "float32")) == len(sweep("float32", "y"))
    assert len(markers(plot.svg, "float16")) == len(sweep("float16", "y"))


def test_infinite_errors_are_at_the_top_edge_and_counted() -> None:
    (plot,) = draw(sweep("float32", "y"))
    infinite = sum(math.isinf(each.natural) for each in sweep("float32", "y"))
    assert plot.beyond == infinite > 0
    heights = sorted(y for _, y in markers(plot.svg, "float32"))
    assert heights[0] == heights[infinite - 1] < heights[infinite]


@pytest.mark.parametrize("natural", [0.0, 1e-300, 1e300, math.inf, math.nan])
@pytest.mark.parametrize("kappa", [0.0, 1.0, 1e30, math.inf, math.nan])
def test_any_number_stays_within_the_frame(natural: float, kappa: float) -> None:
    results = sweep("float32", "y")[:3]
    results.append(dataclasses.replace(results[0], natural=natural, kappa=kappa))
    (plot,) = draw(results)
    box = ET.fromstring(plot.svg).attrib["viewBox"].split()
    drawn = markers(plot.svg, "float32")
    assert len(drawn) == 4
    assert plot.beyond == (not natural < 1e40)
    for x, y in drawn:
        assert 0 <= x <= float(box[2])
        assert 0 <= y <= float(box[3])


def test_guides_are_named() -> None:
    results = sweep("float32", "y")
    (plot,) = draw(results)
    assert {"stable allows 10", "κ", "κ²", "condition number κ"} <= set(texts(plot.svg))
    more = [*results, dataclasses.replace(results[0], allowed=14.0)]
    (plot,) = draw(more)
    assert "stable allows 10 to 14" in texts(plot.svg)


def test_plots_of_one_page_share_its_colours_but_no_names_and_have_no_size() -> None:
    seen: set[str] = set()
    for plot in draw(failing_report().results):
        assert not any(placeholder in plot.svg for placeholder in VARIABLES)
        assert not re.findall(r"(?:fill|stroke): ?#(?!000000|ffffff)", plot.svg)
        names = re.findall(r'\bid="([^"]+)"', plot.svg)
        used = re.findall(r'(?:href="#|url\(#)([^")]+)', plot.svg)
        assert set(used) <= set(names)
        assert not seen & set(names)
        seen |= set(names)
        assert plot.svg.startswith("<svg role=")
        assert not {"width", "height"} & set(ET.fromstring(plot.svg).attrib)


def test_the_same_data_give_the_same_plot() -> None:
    assert draw(sweep("float16", "y")) == draw(sweep("float16", "y"))
