"""The page: complete, escaped, and in need of nothing else."""

import dataclasses
import re
import unicodedata
from html.parser import HTMLParser

import pytest

from truenorm.verify.grading.report import GRADES, VERDICTS
from truenorm.verify.operations import OUTPUTS
from truenorm.verify.report import wording
from truenorm.verify.report.html import to_html
from verify.fake_report import NASTY, failing_report, passing_report

EMPTY = {"meta", "br", "path", "use"}


class Page(HTMLParser):
    """The tags, the attributes and the text of a page; tags must close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.said: dict[str, list[str]] = {}
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
            self.said.setdefault(self.open[-1], []).append(data)

    def of(self, tag: str) -> list[str]:
        return self.said.get(tag, [])

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


def test_foreign_text_is_text(page: Page, text: str) -> None:
    assert "<script" not in text
    for tag in ("title", "h1", "h3", "pre", "th"):
        assert any(NASTY in each for each in page.of(tag)), tag
    assert any(NASTY in value for value in page.values("title"))


def test_control_characters_do_not_reach_the_page(page: Page, text: str) -> None:
    """A browser shows nothing of them; a terminal in which somebody looks at the file obeys."""
    kinds = {unicodedata.category(each) for each in text if each != "\n"}
    assert kinds.isdisjoint({"Cc", "Cf"})
    for tag in ("h1", "h3"):
        assert any(r"\x1b[31mred\x07\u202e" in each for each in page.of(tag))
    assert any(each.count("\n") > 2 for each in page.of("pre")), "a reproducer has lines"


def test_it_runs_nothing_and_loads_nothing(page: Page) -> None:
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "default-src 'none'; style-src 'unsafe-inline'" in page.values("content")
    foreign = {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert foreign.isdisjoint(page.tags)
    assert page.values("src") == []
    assert {tag for tag, name, value in page.attributes if name == "href"} <= {"a", "use"}
    assert all(value.startswith("#") for value in page.values("xlink:href"))
    style = "".join(page.of("style"))
    assert "@import" not in style
    assert "url(" not in style


def test_sources_are_links(page: Page) -> None:
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert links == [
        "https://github.com/pytorch/pytorch/issues/51102",
        "https://github.com/microsoft/onnxruntime/issues/28463",
    ]
    assert page.of("a") == ["pytorch#51102", "onnxruntime#28463"]
    assert any("a talk" in text for text in page.of("dd"))


def test_headline(page: Page, good: Page) -> None:
    facts = dict(zip(page.of("dt"), page.of("dd"), strict=False))
    known = {"level": "quick", "required": "stable", "date": "2025-01-31", "numpy": "2.4.6"}
    assert known.items() <= facts.items()
    assert "FAIL" in page.of("span")
    assert wording.conclusion(REPORT) in "".join(page.of("p"))
    assert "PASS" in good.of("span")
    assert "FAIL" not in good.of("span")
    today = dict(zip(good.of("dt"), good.of("dd"), strict=False))["date"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", today)


def test_grades_verdicts_findings(page: Page) -> None:
    for grade in REPORT.grades:
        assert {grade.grade, wording.max_ulp(grade)} <= set(page.of("td"))
    assert page.of("b") == list(VERDICTS)
    assert page.tags.count("article") == len(REPORT.findings)
    assert page.of("pre") == [each.reproducer for each in REPORT.findings if each.reproducer]
    assert set(GRADES) <= set(page.of("dt"))
    assert {wording.cause(each) for each in REPORT.findings} - {""} <= set(page.of("dd"))


def test_types_stay_in_their_order() -> None:
    turned = dataclasses.replace(REPORT, grades=REPORT.grades[::-1])
    rows = [text for text in Page(to_html(turned)).of("th") if text.startswith("float")]
    assert rows[:2] == ["float32", "float16"]


def test_plots_and_what_they_do_not_show(page: Page, good: Page) -> None:
    assert page.tags.count("svg") == len(OUTPUTS)
    said = " ".join(page.of("figcaption"))
    assert "3 infinite or too large to draw: at the top edge" in said
    assert "float32: unstable, slope 2.0" in page.of("span")
    assert "svg" not in good.tags
    assert "No sweep over κ was run." in good.of("p")


def test_heat_map_has_a_row_for_each_family_and_case(page: Page) -> None:
    names = {name for each in REPORT.results for name in (each.family, each.case)}
    assert names <= set(page.of("th"))
    assert "none" in page.values("class")
    assert "not judged" in page.of("li")
    nothing = dataclasses.replace(REPORT, results=(), grades=())
    assert "No result was measured." in Page(to_html(nothing)).of("p")


def test_every_colour_is_defined_for_light_and_dark(text: str) -> None:
    light, dark = text.split("@media (prefers-color-scheme: dark)", 1)
    defined = set(re.findall(r"--([\w-]+):", light))
    assert set(re.findall(r"var\(--([\w-]+)\)", text)) <= defined | {"tone"}
    assert defined == set(re.findall(r"--([\w-]+):", dark.split("* { box", 1)[0]))
