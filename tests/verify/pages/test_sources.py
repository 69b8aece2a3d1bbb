"""Where failures were reported."""

import re

import pytest

import truenorm.verify as tv
from truenorm.verify.pages.sources import REPOSITORIES, link
from truenorm.verify.types import FORMATS


def test_every_source_of_a_case_has_an_address() -> None:
    pytest.importorskip("ml_dtypes")
    sources = {source for dtype in FORMATS for case in tv.cases(dtype) for source in case.sources}
    assert sources
    for source in sources:
        assert re.fullmatch(r"https://[\w./-]+", link(source)), source


@pytest.mark.parametrize("name", REPOSITORIES)
def test_short_names_are_those_of_the_repositories(name: str) -> None:
    assert REPOSITORIES[name].partition("/")[2] == name
    assert link(f"{name}#7") == f"https://github.com/{REPOSITORIES[name]}/issues/7"


@pytest.mark.parametrize(
    "source",
    [
        "unheard-of#7",
        "pytorch#",
        "pytorch#7a",
        "pytorch",
        "",
        "javascript:alert(1)",
        "http://example.org",
        "a/b/c#1",
        '"><script>#1',
        "pytorch#\u0667",
    ],
)
def test_what_is_no_known_issue_has_none(source: str) -> None:
    assert link(source) == ""
