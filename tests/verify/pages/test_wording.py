"""Sentences that every kind of page has."""

import dataclasses

from truenorm.verify.grading.report import GRADES
from truenorm.verify.pages import wording
from verify.fake_report import failing_report, passing_report


def test_every_grade_has_a_meaning() -> None:
    assert tuple(reversed(wording.MEANINGS)) == GRADES


def test_conclusion() -> None:
    failing, passing = failing_report(), passing_report()
    assert wording.conclusion(passing) == "No finding, and every grade is at least correct."
    assert wording.conclusion(failing) == (
        "5 findings; below stable: y in float16, y dx dgamma in float32."
    )
    one = dataclasses.replace(failing, require="wrong", findings=failing.findings[:1])
    assert wording.conclusion(one) == "1 finding."
    none = dataclasses.replace(failing, require="conditional", findings=())
    assert wording.conclusion(none) == "below conditional: y dx in float32."
