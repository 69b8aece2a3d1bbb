"""Every planted bug of a grouped norm is caught, and no wrong cause is named."""

import numpy as np
import pytest

import truenorm.verify as tv
from shared.choosing import few, slow_unless
from shared.verify.causes import assert_true
from shared.verify.grouped.kernels import Textbook, few_cases, judge_cases
from shared.verify.grouped.planted import CAUSES, PLANTED, Planted, grouped
from shared.verify.grouped.unseen import UNSEEN, Unseen
from truenorm.verify.collecting import collect
from truenorm.verify.grading.grades import grade
from truenorm.verify.operation import Case
from truenorm.verify.running.runners import InProcess

SHOWN_BY = {"dgamma in bfloat16": "many-rows", "dscale in bfloat16": "many-units"}
"""Bugs that small cases do not show, and the family that does."""


def small_cases(bug: Planted) -> list[Case]:
    """Return small cases of the quick level, and those that show a bug."""
    return few_cases(bug.subject, family=SHOWN_BY.get(bug.name, ""))


FIRST_OF_NORM = {bug.spec: bug.name for bug in reversed(PLANTED)}.values()


@pytest.mark.parametrize(
    "bug",
    slow_unless(lambda bug: bug.name in FIRST_OF_NORM, PLANTED, reason="a verdict takes seconds"),
    ids=[bug.name for bug in PLANTED],
)
def test_a_planted_bug_is_caught(bug: Planted) -> None:
    report = judge_cases(bug.subject, small_cases(bug), strict=False)
    assert not report.passed
    assert_true(report, CAUSES[bug.name])


@pytest.mark.parametrize(
    "wrong",
    few(UNSEEN, reason="a verdict takes seconds"),
    ids=[f"{k}-{each.spec}" for k, each in enumerate(UNSEEN)],
)
def test_an_unseen_bug_gets_its_cause_or_none(wrong: Unseen) -> None:
    subject = wrong.kernel(grouped(wrong.spec)).subject()
    report = judge_cases(subject, few_cases(subject), strict=False)
    assert not report.passed
    named = {
        (each.output, ", ".join(one.id for one in each.causes))
        for each in report.findings
        if each.causes
    }
    assert named == {*wrong.causes.items()}


def test_rounding_errors_of_float64_are_no_wrong_step() -> None:
    """Hypotheses that change nothing in these cases have the same rounding errors."""
    norm = grouped("group_norm,groups=2")
    subject = Textbook(norm).subject("float64")
    suite = [
        each
        for each in tv.cases("float64", operation=norm)
        if each.x.size < 300 and each.kind != "special"
    ]
    with np.errstate(all="ignore"):
        records = collect(InProcess(subject), suite)
    report = grade("textbook", suite, records, outputs=["y", "dx"])
    causes = {(each.guard, *(cause.id for cause in each.causes)) for each in report.findings}
    assert causes == {("growth",), ("finite", "squares-overflow(float64)")}
