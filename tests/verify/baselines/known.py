"""Reports on a few cases, and reports made by hand, to be held against a baseline."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import truenorm.verify as tv
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.report import VERDICTS, CaseResult, Finding, Grade, Report
from truenorm.verify.judge import collect
from truenorm.verify.operations import LAYER_NORM
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import Array

FEW = ("float32-normal-4x17", "float32-offset-1e4-4x67", "float32-nan-in-x")


def one_pass(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Return y with a variance in one pass, which has no digits left where the mean is large."""
    mean = x.mean(axis=-1, keepdims=True)
    var = (x * x).mean(axis=-1, keepdims=True) - mean * mean
    y: Array = gamma * (x - mean) / np.sqrt(np.abs(var) + np.float32(eps)) + beta
    return y


def wide(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Return y by way of float64."""
    c = x.astype(np.float64) - x.astype(np.float64).mean(axis=-1, keepdims=True)
    y: Array = gamma * c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps) + beta
    return y.astype(x.dtype)


def forgets_nan(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Return numbers where NaN is due."""
    return one_pass(np.nan_to_num(x), gamma, beta, eps)


KERNEL = tv.Subject(one_pass, name="kernel")


def judged(subject: tv.Subject, names: Sequence[str] = FEW, require: str = "stable") -> Report:
    """Judge a subject on some cases alone."""
    suite = [tv.case(name) for name in names]
    records = collect(InProcess(subject), suite)
    return grade(subject.name, suite, records, outputs=subject.outputs, require=require)


def finding(
    guard: str = "growth", families: Sequence[str] = ("offset",), output: str = "y"
) -> Finding:
    """Return a finding of some families."""
    verdicts = {"growth": "accuracy", "ordinary": "accuracy", "finite": "accuracy"}
    verdicts |= {"repeat": "repeatable", "special": "special values", "recipe": "recipe"}
    what = (guard, verdicts[guard], "float32", output, f"float32-{families[0]}-4x67", "why")
    return Finding(*what, f"{output} is off", families=tuple(families))


def made(
    *findings: Finding,
    of_y: str = "unstable",
    run: Sequence[str] = ("normal", "offset", "constant", "nan-in-x"),
    require: str = "stable",
) -> Report:
    """Return a report with these findings, whose y has this grade."""
    results = tuple(
        CaseResult(
            f"float32-{family}", "float32", family, "hard", "y", 1.0, 1.0, 9.0, 0, False, 1.0
        )
        for family in run
    )
    return Report(
        subject="kernel",
        level="quick",
        require=require,
        grades=(Grade("float32", "y", of_y, 1.0, 1.0, "float32-normal", None),),
        verdicts=dict.fromkeys(VERDICTS, "pass")
        | {each.verdict: "fail" for each in findings if each.verdict in VERDICTS},
        findings=findings,
        results=results,
        cases=len(results),
        operation=LAYER_NORM,
    )


def with_verdict(report: Report, verdict: str, outcome: str) -> Report:
    """Return a report with another outcome of a verdict."""
    return replace(report, verdicts={**report.verdicts, verdict: outcome})
