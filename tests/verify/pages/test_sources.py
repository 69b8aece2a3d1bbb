"""Where failures were reported."""

import pytest

from truenorm.verify.pages.sources import REPOSITORIES, link


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
