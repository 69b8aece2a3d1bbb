"""Wrong quantized norms are found at the quick level, and their causes are named."""

from functools import cache

import numpy as np
import pytest

from shared.choosing import few
from shared.verify.causes import assert_true
from shared.verify.quantized.kernels import judge
from shared.verify.quantized.planted import CAUSES, PLANTED
from truenorm.verify.grading.report import Finding, Report

CHECKS = ("codes", "scale", "recipe", "sum", "zeros", "special", "amax")

OF_ZEROS = {"zero-rows", "all-zero", "zero-groups"}


@cache
def report_on(name: str) -> Report:
    bug = PLANTED[name]
    with np.errstate(all="ignore"):
        return judge(bug.kernel.subject(bug.dtype, recipe=bug.recipe), calls=False)


def check_of(finding: Finding) -> str:
    """Return the check that a finding is of, as one of `CHECKS`."""
    if finding.guard in CHECKS:
        return finding.guard
    return "zeros" if {*finding.families} <= OF_ZEROS else finding.output


@pytest.mark.parametrize("name", few(PLANTED, reason="a verdict takes seconds", count=8))
def test_is_found_with_its_cause(name: str) -> None:
    bug, report = PLANTED[name], report_on(name)
    assert bug.found_by in {check_of(each) for each in report.findings}
    assert_true(report, CAUSES[name])


@pytest.mark.parametrize("check", CHECKS)
def test_check_sees_a_bug_that_no_other_sees(check: str) -> None:
    assert any(
        {check_of(each) for each in report_on(name).findings} == {check}
        for name, bug in PLANTED.items()
        if bug.found_by == check
    )
