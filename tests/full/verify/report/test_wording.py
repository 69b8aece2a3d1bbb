"""Sentences that all pages share: conclusions, advice and links."""

import dataclasses

import pytest

from shared.verify.fake_report import failing_report, passing_report
from truenorm.verify.grading.advice import ACCURACY_ADVICE, ADVICE
from truenorm.verify.grading.report import GRADES
from truenorm.verify.grading.symptoms import GUARDS
from truenorm.verify.report import wording
from truenorm.verify.report.wording import REPOSITORIES, link


def test_every_grade_has_a_meaning() -> None:
    assert tuple(reversed(wording.MEANINGS)) == GRADES


def test_conclusion() -> None:
    failing = failing_report()
    one = dataclasses.replace(failing, require="wrong", findings=failing.findings[:1])
    none = dataclasses.replace(failing, require="conditional", findings=())
    for report, sentence in (
        (passing_report(), "correct."),
        (failing, "5 findings; below stable: y in float16, y dx dgamma in float32."),
        (one, "1 finding."),
        (none, "below conditional: y dx in float32."),
    ):
        assert wording.conclusion(report) == sentence


@pytest.mark.parametrize("name", REPOSITORIES)
def test_short_names_of_repositories(name: str) -> None:
    assert REPOSITORIES[name].partition("/")[2] == name
    assert link(f"{name}#7") == f"https://github.com/{REPOSITORIES[name]}/issues/7"


@pytest.mark.parametrize(
    "source",
    [
        *("unheard-of#7", "pytorch#", "pytorch#7a", "pytorch", "", "a/b/c#1", "pytorch#\u0667"),
        *("javascript:alert(1)", "http://example.org", '"><script>#1'),
    ],
)
def test_source_without_a_link(source: str) -> None:
    assert link(source) == ""


def test_every_check_has_advice() -> None:
    of_accuracy = {"ordinary", "finite", "growth"}
    assert of_accuracy <= ACCURACY_ADVICE.keys()
    assert ADVICE.keys() | of_accuracy == {*GUARDS, "rounding"}
    assert ADVICE.keys().isdisjoint(ACCURACY_ADVICE)


@pytest.mark.parametrize("guard", [*ADVICE, *ACCURACY_ADVICE])
def test_advice_is_short(guard: str) -> None:
    by_check = {**ADVICE, **ACCURACY_ADVICE}[guard]
    assert by_check.matters != by_check.to_try
    assert all(10 < len(each) <= 90 for each in by_check)
