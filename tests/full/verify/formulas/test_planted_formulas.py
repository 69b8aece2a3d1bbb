"""Kernels of formulas: honest kernels pass, and planted bugs are caught, with no untrue cause."""

import pytest

import truenorm.verify as tv
from shared.verify.formulas import SOFTMAX_BUGS, softmax, softmax_backward, softmax_forward

SOFTMAX = tv.formula(softmax)


def test_an_honest_softmax_passes() -> None:
    subject = tv.Subject(softmax_forward, softmax_backward, operation=SOFTMAX)
    report = tv.verify(subject)
    assert report.passed, report.findings
    assert [each.grade for each in report.grades] == ["stable", "stable"]


@pytest.mark.parametrize("name", SOFTMAX_BUGS)
def test_planted_bugs_are_caught(name: str) -> None:
    bug = SOFTMAX_BUGS[name]
    report = tv.verify(tv.Subject(bug.forward, bug.backward, operation=SOFTMAX))
    causes = [each.cause for each in report.findings if each.cause]
    assert report.findings
    assert all(bug.cause and bug.cause in each for each in causes)
    assert bool(causes) == bool(bug.cause)
