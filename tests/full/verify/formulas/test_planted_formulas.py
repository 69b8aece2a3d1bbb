"""Kernels of the formulas that ship: honest ones pass, bugs are caught, no cause is untrue.

The cases are those of `verify` with few elements. Their answers are computed once a formula.
"""

import pytest

import truenorm.verify as tv
from shared.verify.causes import assert_true
from shared.verify.formulas import BUGS, KERNELS, Bug, report_of
from truenorm.verify.formulas.shipped import SHIPPED
from truenorm.verify.grading.report import Report

HONEST = Bug(None, None)


def judged(name: str, bug: Bug) -> Report:
    forward, backward = KERNELS[name]
    passes = bug.forward or forward, bug.backward or backward
    return report_of(tv.Subject(*passes, operation=SHIPPED[name](), name=name))


@pytest.mark.parametrize("name", SHIPPED)
def test_honest_kernels_pass(name: str) -> None:
    report = judged(name, HONEST)
    assert report.passed, report.findings
    assert {each.grade for each in report.grades} <= {"stable", "faithful", "correct"}


@pytest.mark.parametrize(("name", "bug"), [(name, bug) for name in BUGS for bug in BUGS[name]])
def test_bugs_are_caught(name: str, bug: str) -> None:
    planted = BUGS[name][bug]
    report = judged(name, planted)
    assert report.findings
    assert_true(report, planted.causes)


def test_every_formula_has_bugs_and_nine_tenths_have_a_cause() -> None:
    planted = [bug for bugs in BUGS.values() for bug in bugs.values()]
    assert BUGS.keys() == KERNELS.keys() == SHIPPED.keys()
    assert min(map(len, BUGS.values())) >= 6
    assert sum(bool(bug.causes) for bug in planted) >= 0.9 * len(planted)
