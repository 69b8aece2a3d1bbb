"""The rules of harnesses, and the published counts."""

from typing import Any

import numpy as np
import pytest

from benchmarks.common import read_results
from benchmarks.harnesses import FILES, RULES, bugs, page, passes
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array

PUBLISHED = read_results(FILES[0])
BY_NAME = {rule.harness: rule for rule in RULES}


def right(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    wide = x.astype(np.float64)
    xhat = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + eps)
    y: Array = (gamma * xhat + beta).astype(np.float32)
    return y


@pytest.mark.parametrize("rule", RULES, ids=BY_NAME)
def test_right_kernels_pass_and_zeros_fail(rule: Any) -> None:
    assert passes(rule, Subject(right))
    assert not passes(rule, Subject(lambda x, *_: np.zeros_like(x)))
    assert not passes(rule, Subject(lambda x, *_: x[:1]))
    assert not passes(rule, Subject(lambda *_: 1 // 0))


@pytest.mark.parametrize(
    ("harness", "accepted", "refused"),
    [
        # Beside 1, of which allclose allows twice the tolerance.
        ("KernelBench", 1.9e-4, 2.1e-4),
        ("KernelBench, v0.1", 1.9e-2, 2.1e-2),
        ("robust-kbench", 1.9e-5, 2.1e-5),
        ("FlashInfer-Bench", 0.9e-2, 1.1e-2),
        ("OpenEnv kernrl", 0.069, 0.071),
    ],
)
def test_tolerances(harness: str, accepted: float, refused: float) -> None:
    accepts, exact = BY_NAME[harness].accepts, np.ones((2, 2))
    assert accepts(exact + np.diag([0, accepted]), exact)
    assert not accepts(exact + np.diag([0, refused]), exact)
    assert not accepts(exact * np.nan, exact)


def test_one_of_two_errors_may_be_large() -> None:
    accepts = BY_NAME["FlashInfer-Bench"].accepts
    exact = np.array([100.0, 1e-4])
    assert accepts(exact + np.array([0.9, 0.009]), exact)
    assert not accepts(exact + np.array([1.1, 0.0]), exact)


def test_published_counts_are_of_these_bugs() -> None:
    subjects = bugs()
    assert PUBLISHED["bugs"] == len(subjects)
    rules = {each["harness"]: each for each in PUBLISHED["rules"]}
    assert list(rules) == list(BY_NAME)
    name = "one-pass variance"
    for harness, rule in rules.items():
        assert set(rule["passed"]) <= subjects.keys()
        assert (name in rule["passed"]) == passes(BY_NAME[harness], subjects[name])
        assert f"| {len(rule['passed'])} of {len(subjects)} |" in page(PUBLISHED)
