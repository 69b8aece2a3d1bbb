"""The HTML report: complete, escaped and self-contained; its plots and its heat map."""

import dataclasses
import itertools
import math
import re
import unicodedata
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from shared.verify.fake_report import NASTY, failing_report, passing_report, sweep
from truenorm.verify.grading.report import GRADES, VERDICTS, CaseResult
from truenorm.verify.report import wording
from truenorm.verify.report.html import VARIABLES, by_case, by_family, draw, to_html

EMPTY = {"meta", "br", "path", "use"}


class Page(HTMLParser):
    """The tags, the attributes and the text of a page; tags must close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def of(self, tag: str) -> list[str]:
        return self.texts.get(tag, [])

    def values(self, name: str) -> list[str]:
        return [value for _, each, value in self.attributes if each == name]


REPORT = failing_report()


@pytest.fixture(scope="module")
def text() -> str:
    return to_html(REPORT)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


@pytest.fixture(scope="module")
def good() -> Page:
    return Page(to_html(passing_report()))


def test_tags_are_balanced(page: Page, good: Page) -> None:
    assert page.open == good.open == []


def test_text_of_the_subject_is_escaped(page: Page, text: str) -> None:
    assert "<script" not in text
    for tag in ("title", "h1", "h3", "pre", "th"):
        assert any(NASTY in each for each in page.of(tag)), tag
    assert any(NASTY in value for value in page.values("title"))


def test_control_characters_are_escaped(page: Page, text: str) -> None:
    """A terminal would interpret them when the file is printed."""
    kinds = {unicodedata.category(each) for each in text if each != "\n"}
    assert kinds.isdisjoint({"Cc", "Cf"})
    for tag in ("h1", "h3"):
        assert any(r"\x1b[31mred\x07\u202e" in each for each in page.of(tag))
    assert any(each.count("\n") > 2 for each in page.of("pre")), "a reproducer has lines"


def test_page_runs_and_loads_nothing(page: Page) -> None:
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "default-src 'none'; style-src 'unsafe-inline'" in page.values("content")
    foreign = {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert foreign.isdisjoint(page.tags)
    assert page.values("src") == []
    links = [(tag, value) for tag, name, value in page.attributes if name == "href"]
    assert links == [
        ("a", "https://github.com/pytorch/pytorch/issues/51102"),
        ("a", "https://github.com/microsoft/onnxruntime/issues/28463"),
    ]
    assert all(value.startswith("#") for value in page.values("xlink:href"))
    style = "".join(page.of("style"))
    assert "@import" not in style
    assert "url(" not in style


def test_grades_verdicts_findings(page: Page) -> None:
    for grade in REPORT.grades:
        assert {grade.grade, wording.max_ulp(grade)} <= set(page.of("td"))
    assert page.of("b") == list(VERDICTS)
    assert page.tags.count("article") == len(REPORT.findings)
    assert page.of("pre") == [each.reproducer for each in REPORT.findings if each.reproducer]
    assert set(GRADES) <= set(page.of("dt"))
    assert {wording.likely_cause(each) for each in REPORT.findings} - {""} <= set(page.of("dd"))


MEANINGS = "What the grades mean"


def test_heat_map_has_a_row_for_each_family_and_case(page: Page) -> None:
    names = {name for each in REPORT.results for name in (each.family, each.case)}
    assert names <= set(page.of("th"))
    assert "none" in page.values("class")
    assert "not judged" in page.of("li")
    nothing = dataclasses.replace(REPORT, results=(), grades=())
    assert Page(to_html(nothing)).of("h2") == ["Findings", "Grades", "Checks", MEANINGS]


def result(
    case: str = "a-1",
    dtype: str = "float32",
    output: str = "y",
    natural: float = 1.0,
    allowed: float = 10.0,
) -> CaseResult:
    family = case.partition("-")[0]
    return CaseResult(case, dtype, family, "hard", output, 2.0, natural, allowed, 0, False, 1.0)


def test_cases_beyond_the_domain_have_rows_of_their_own() -> None:
    results = [result("a-1"), result("a-2", natural=20.0), result("b-1", natural=30.0)]
    rows = dict(by_family(results, {"a-2", "b-1"}).rows)
    assert {name: cell and cell.text for name, (cell,) in rows.items()} == {
        "a": "0.10",
        "a, beyond the domain": "2.0",
        "b, beyond the domain": "3.0",
    }
    names = [name for name, _ in by_case(results, {"b-1"}).rows]
    assert names == ["a-1", "a-2", "b-1, beyond the domain"]


def test_cells_that_were_not_judged() -> None:
    results = [result("a-1"), result("b-1", "float16", "dx"), result("b-2", "float32", "dx")]
    heat_map = by_family(results)
    assert heat_map.groups == [("float32", ["y", "dx"]), ("float16", ["dx"])]
    assert [name for name, _ in heat_map.rows] == ["a", "b"]
    assert [[cell is None for cell in cells] for _, cells in heat_map.rows] == [
        [False, True, True],
        [True, False, False],
    ]
    assert by_case(results).groups == [("", ["y", "dx"])]
    assert by_family([]).rows == by_case([]).rows == []


SVG = "{http://www.w3.org/2000/svg}"


def markers(svg: str, dtype: str) -> list[tuple[float, float]]:
    """Return the positions of the markers of a type, from the left and from the top."""
    uses = ET.fromstring(svg).iter(f"{SVG}use")
    return [
        (float(use.attrib["x"]), float(use.attrib["y"]))
        for use in uses
        if f"var(--{dtype})" in use.attrib.get("style", "")
    ]


STROKE = "stroke: var(--float32)"
"""The style of a hollow point."""


def test_points_beyond_the_domain_are_hollow() -> None:
    results = sweep("float32", "y")
    outside = {each.case for each in results if each.kappa > 1e3}
    (plot,) = draw(results, outside)
    assert plot.outside == len(outside) > 0
    elements = ET.fromstring(plot.svg).iter()
    stroked = [each for each in elements if STROKE in each.attrib.get("style", "")]
    assert len(stroked) == len(outside)
    assert len(markers(plot.svg, "float32")) >= len(results) - plot.too_large
    (whole,) = draw(results)
    assert whole.outside == 0


def test_infinite_errors_are_at_the_top_edge_and_counted() -> None:
    (plot,) = draw(sweep("float32", "y"))
    infinite = sum(math.isinf(each.natural) for each in sweep("float32", "y"))
    assert plot.too_large == infinite > 0
    heights = sorted(y for _, y in markers(plot.svg, "float32"))
    assert heights[0] == heights[infinite - 1] < heights[infinite]


def test_any_number_stays_within_the_frame() -> None:
    results = sweep("float32", "y")[:3]
    numbers = (0.0, 1e-300, 1.0, 1e30, 1e300, math.inf, math.nan)
    every = [
        dataclasses.replace(results[0], natural=natural, kappa=kappa)
        for natural, kappa in itertools.product(numbers, numbers)
    ]
    (plot,) = draw([*results, *every])
    box = ET.fromstring(plot.svg).attrib["viewBox"].split()
    drawn = markers(plot.svg, "float32")
    assert len(drawn) == 3 + len(every)
    assert plot.too_large == sum(not each.natural < 1e40 for each in every)
    assert all(0 <= x <= float(box[2]) and 0 <= y <= float(box[3]) for x, y in drawn)


def test_plots_share_colours_but_no_ids() -> None:
    all_ids: set[str] = set()
    for plot in draw(failing_report().results):
        assert not any(placeholder in plot.svg for placeholder in VARIABLES)
        assert not re.findall(r"(?:fill|stroke): ?#(?!000000|ffffff)", plot.svg)
        names = re.findall(r'\bid="([^"]+)"', plot.svg)
        used = re.findall(r'(?:href="#|url\(#)([^")]+)', plot.svg)
        assert set(used) <= set(names)
        assert not all_ids & set(names)
        all_ids |= set(names)
        assert plot.svg.startswith("<svg role=")
        assert not {"width", "height"} & set(ET.fromstring(plot.svg).attrib)


def test_plots_are_reproducible() -> None:
    assert draw(sweep("float16", "y")) == draw(sweep("float16", "y"))
