"""Recipes are identified by their bits, and other bits by a hypothesis.

Planted bugs and right kernels have each recipe, see `test_planted.py`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import truenorm as tn
import truenorm.verify as tv
from truenorm.verify.causes import Cause
from truenorm.verify.collecting import collect
from truenorm.verify.diagnosis.bits import diagnose_bits
from truenorm.verify.grading.grades import grade
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import Array, Float64s, dtype_of

Function = Callable[..., Any]


def rms_early(x: Array, gamma: Array, eps: float) -> Array:
    return np.asarray(tn.rms_norm(x, eps=eps) * gamma)


def report_of(forward: Function, dtype: str, operation: tv.Norm, recipe: str = "") -> tv.Report:
    """Judge ordinary rows, which identify the recipe."""
    subject = tv.Subject(forward, dtypes=[dtype], operation=operation, recipe=recipe)
    suite = [case for case in tv.cases(dtype, operation=operation) if case.family == "normal"]
    records = collect(InProcess(subject), suite)
    return grade("mine", suite, records, outputs=subject.outputs, recipe=recipe)


def test_recipe_with_float32_weights_and_results() -> None:
    """Hugging Face's Llama norm multiplies the rounded xhat by a float32 weight."""

    def forward(x: Array, gamma: Array, eps: float) -> Array:
        return np.asarray(gamma * tn.rms_norm(x, eps=eps).astype(np.float32))

    operation = tv.norm("rms_norm", parameters="float32", result="float32")
    report = report_of(forward, "bfloat16", operation)
    assert [each.names for each in report.recipes] == [("early",)]
    assert report.passed


@pytest.mark.parametrize("required", ["late", "weight-typed", "early"])
def test_required_recipe_of_a_float32_result(required: str) -> None:
    """Only the bits of early show in float32: those of another recipe are not required."""

    def in_float64(x: Array, gamma: Array, eps: float) -> Array:
        wide = x.astype(np.float64)
        rstd = 1 / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + eps)
        return np.asarray(wide * rstd * gamma).astype(np.float32)

    def rounded(x: Array, gamma: Array, eps: float) -> Array:
        return np.asarray(gamma * tn.rms_norm(x, eps=eps).astype(np.float32))

    operation = tv.norm("rms_norm", parameters="float32", result="float32")
    for forward, passes in ((in_float64, required != "early"), (rounded, required == "early")):
        report = report_of(forward, "bfloat16", operation, required)
        assert report.passed == passes
        assert [each.guard for each in report.findings] == ["recipe"] * (not passes)


def test_float32_has_no_recipe() -> None:
    assert report_of(rms_early, "float32", tv.RMS_NORM).recipes == ()


def test_recipe_other_than_required() -> None:
    report = report_of(rms_early, "bfloat16", tv.RMS_NORM, "late")
    (finding,) = report.findings
    assert finding.guard == "recipe"
    assert "late requires: bits of early in 100.00 %, of late in 7" in finding.symptom
    assert "recipe='late'" in finding.reproducer
    assert not report.passed
    for name in ("early", "apex"):
        assert report_of(rms_early, "bfloat16", tv.RMS_NORM, name).passed


@cache
def telling() -> list[Case]:
    """Return the cases whose bits tell recipes apart."""
    return [case for case in tv.cases("bfloat16") if tv.LAYER_NORM.knowledge.recipes(case, {})]


def to_bfloat16(numbers: Float64s) -> Array:
    result: Array = numbers.astype(dtype_of("bfloat16"))
    return result


NO_BETA, TRUNCATED = Cause("no-term(beta)", ""), Cause("y-truncated", "")


@pytest.mark.parametrize("cause", [NO_BETA, TRUNCATED], ids=["no-term(beta)", "y-truncated"])
def test_hypothesis_with_the_bits_of_y(cause: Cause) -> None:
    hypothesis = tv.LAYER_NORM.knowledge.hypotheses("y")[cause]
    results = [(case, to_bfloat16(hypothesis(case))) for case in telling()]
    found = diagnose_bits(results, "y")
    assert (found.causes, found.match) == ((cause,), "matches the bits of y")


def test_a_hypothesis_with_the_bits_of_the_exact_answer_says_nothing() -> None:
    """Where no input has gaps in memory, none can be misread."""
    results = [(case, to_bfloat16(expected(case).number("y"))) for case in telling()]
    assert not diagnose_bits(results, "y").causes


def test_two_percent_of_other_bits_are_too_many() -> None:
    hypothesis = tv.LAYER_NORM.knowledge.hypotheses("y")[NO_BETA]

    def mostly(case: Case) -> Array:
        y = hypothesis(case)
        return to_bfloat16(np.where(np.arange(y.size).reshape(y.shape) % 50, y, 2 * y))

    assert not diagnose_bits([(case, mostly(case)) for case in telling()], "y").causes
