"""Sentences that all pages share: conclusions, advice and links."""

import pytest

from truenorm.verify.grading.advice import ACCURACY_ADVICE, ADVICE
from truenorm.verify.grading.symptoms import GUARDS
from truenorm.verify.report.wording import link


@pytest.mark.parametrize("source", [
    *("unheard-of#7", "pytorch#", "pytorch#7a", "pytorch", "", "a/b/c#1", "pytorch#\u0667"),
    *("javascript:alert(1)", "http://example.org", '"><script>#1'),
])  # fmt: skip
def test_source_without_a_link(source: str) -> None:
    assert link(source) == ""


def test_every_check_has_advice() -> None:
    of_accuracy = {"ordinary", "finite", "growth"}
    assert of_accuracy <= ACCURACY_ADVICE.keys()
    assert ADVICE.keys() | of_accuracy == {*GUARDS, "rounding"}
    assert ADVICE.keys().isdisjoint(ACCURACY_ADVICE)
