"""Honest kernels have no finding where models need them, and their recipe is named."""

import math
from itertools import product

import pytest

import truenorm.verify as tv
from shared.choosing import few
from shared.verify.honest import DTYPES, HONEST, TRUE_FINDINGS, ordinary_report

SLOW = pytest.mark.slow(reason="each verdict takes seconds")


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=SLOW)])
@pytest.mark.parametrize("name", HONEST)
def test_recipe_is_named(name: str, dtype: str) -> None:
    """All decided elements have the bits of the recipe, and of no recipe of backward but one."""
    report = ordinary_report(HONEST[name].subject(dtype))
    (recipe,) = report.recipes
    assert HONEST[name].recipe in recipe.names
    assert recipe.shares[recipe.name] == 1
    early = HONEST[name].recipe in ("early", "weight-typed")
    expected = {"dx": "gain*dy", "dgamma": "xhat and dy*xhat"} if early else {}
    for backward in report.backward_recipes:
        assert backward.name == expected.get(backward.output, "nothing")
        assert backward.shares[backward.name] == 1


@pytest.mark.parametrize(
    ("name", "dtype"), few(product(HONEST, DTYPES), reason="a verdict takes seconds", count=1)
)
def test_findings_are_true(name: str, dtype: str) -> None:
    report = tv.verify(HONEST[name].subject(dtype), time=math.inf)
    findings = {(finding.output, finding.guard) for finding in report.findings}
    assert findings == TRUE_FINDINGS.get((name, dtype), set())
    assert report.passed == (not findings)
