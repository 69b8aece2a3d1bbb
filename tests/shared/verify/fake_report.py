"""Reports made by hand, and reports on a few cases, for the tests of pages and baselines."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import truenorm.verify as tv
from truenorm.verify.causes import Cause
from truenorm.verify.collecting import collect
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.report import VERDICTS, CaseResult, Finding, Grade, Report
from truenorm.verify.operations import LAYER_NORM, OUTPUTS
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import Array

NASTY = "<script>alert('x')</script> [bold]no[/bold] [/] {{ 7*7 }} \"q\" & µ🙂 $x_"
"""Markup of HTML, Rich, Jinja, and Matplotlib, and characters beyond ASCII."""
ESCAPES = "\x1b[31mred\x07\u202e"
"""Control characters of a terminal."""

ROUNDOFFS = {"float16": 2.0**-11, "float32": 2.0**-24}
POWERS = {("float16", "y"): 1, ("float32", "y"): 2, ("float32", "dx"): 2, ("float32", "dgamma"): 1}
REPRODUCER = f"""\
# {NASTY}
import truenorm.verify as tv
case = tv.case("float32-offset-1e4-4x67")
if case.x.shape[0] > 1 and case.x.shape[1] < 1000:
    print("{"a long line, which must not be wrapped " * 4}")
"""


def sweep(dtype: str, output: str) -> list[CaseResult]:
    """Return errors that grow like a power of kappa up to the size of the result."""
    power, largest = POWERS.get((dtype, output), 0), 1 / ROUNDOFFS[dtype]
    results = []
    for step in range(17 if dtype == "float32" else 9):
        kappa = 10 ** (step / 2)
        natural = min(0.6 * (1 + step % 3) * kappa**power, largest)
        if power == 2 and step > 13:
            natural = math.inf
        what = (f"{dtype}-offset-1e{step / 2:g}-4x67", dtype, "offset", "sweep", output)
        results.append(CaseResult(*what, 3 * natural, natural, 10.0, power, False, kappa))
    return results


def grade_of(dtype: str, output: str) -> Grade:
    power = POWERS.get((dtype, output), 0)
    name = ("stable", "conditional", "unstable")[power]
    worst = sweep(dtype, output)[-1]
    slope = power * 0.99 if power else None
    return Grade(dtype, output, name, worst.ulp, worst.natural, worst.case, slope)


def ordinary(name: str, dtype: str, output: str, natural: float) -> CaseResult:
    what = (f"{dtype}-{name}-8x64", dtype, name, "ordinary", output)
    return CaseResult(*what, 0.5 + natural, natural, 12.0, 0, False, 1.0)


def failing_report() -> Report:
    """Return a report with every kind of number and text."""
    results = [
        result for dtype in ROUNDOFFS for output in OUTPUTS for result in sweep(dtype, output)
    ]
    for dtype in ROUNDOFFS:
        results += [ordinary("normal", dtype, output, 0.0) for output in OUTPUTS]
        results += [ordinary("constant rows", dtype, output, 3e5) for output in ("y", "dx")]
        results += [ordinary("gamma zero", dtype, output, 30.0) for output in OUTPUTS]
    results.append(ordinary(NASTY, "float32", "y", math.nan))
    results.append(ordinary("no scale", "float32", "dx", math.inf))
    return Report(
        subject=f"my kernel {NASTY}{ESCAPES}",
        level="quick",
        require="stable",
        grades=tuple(grade_of(dtype, output) for dtype in ROUNDOFFS for output in OUTPUTS),
        verdicts={**dict.fromkeys(VERDICTS, "pass"), "own state": "not judged", "runs": "fail"},
        findings=(
            Finding(
                *("growth", "accuracy", "float32", "y", "float32-offset-1e4-4x67"),
                "standard deviation 1, mean 10000: a one-pass variance has no digits left",
                "y[2, 5] is NaN, the answer is 0.7310586",
                ("pytorch#51102", "onnxruntime#28463", "a talk"),
                also_in=11,
                reproducer=REPRODUCER,
                tried=99,
                matters="digits are lost",
                to_try="add in blocks",
            ),
            Finding("raised", "runs", "float16", "", NASTY, "", f"raised\n{NASTY}\n{ESCAPES}"),
            *(
                Finding(
                    *("batch", "batch-invariant", "float32", output, "float32-batch-300x48", ""),
                    f"{output} of row 3 changes with the batch",
                    cause=f"another <b>one</b> (matches {output} within 1 ulp)",
                    causes=(Cause("another", "another <b>one</b>"),),
                    reproducer=f"# {output} alone\n",
                )
                for output in ("dx", "dgamma", "dbeta")
            ),
        ),
        results=tuple(results),
        cases=len({result.case for result in results}),
        seconds=272.4,
        machine={"date": "2025-01-31", "python": "3.11.9", "numpy": "2.4.6"},
        operation=LAYER_NORM,
    )


def passing_report() -> Report:
    """Return a report on a subject without a bug and without a backward pass."""
    results = [ordinary("normal", "float64", "y", 0.0)]
    grade = Grade("float64", "y", "correct", 0.5, 0.0, results[0].case, None)
    verdicts = dict.fromkeys(VERDICTS, "pass")
    fields = ("good", "full", "correct", (grade,), verdicts, (), tuple(results), 1, 0.25)
    return Report(*fields, operation=LAYER_NORM)


FEW = ("float32-normal-4x17", "float32-offset-1e4-4x67", "float32-nan-in-x")


def one_pass(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Return y with a one-pass variance, which cancels if the mean is large."""
    mean = x.mean(axis=-1, keepdims=True)
    var = (x * x).mean(axis=-1, keepdims=True) - mean * mean
    y: Array = gamma * (x - mean) / np.sqrt(np.abs(var) + np.float32(eps)) + beta
    return y


def wide(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    c = x.astype(np.float64) - x.astype(np.float64).mean(axis=-1, keepdims=True)
    y: Array = gamma * c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps) + beta
    return y.astype(x.dtype)


def forgets_nan(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Return finite numbers instead of NaN."""
    return one_pass(np.nan_to_num(x), gamma, beta, eps)


KERNEL = tv.Subject(one_pass, name="kernel")


def judged(subject: tv.Subject, names: Sequence[str] = FEW, require: str = "stable") -> Report:
    suite = [tv.case(name, operation=subject.operation) for name in names]
    records = collect(InProcess(subject), suite)
    return grade(subject.name, suite, records, outputs=subject.outputs, require=require)


def finding(
    guard: str = "growth", families: Sequence[str] = ("offset",), output: str = "y"
) -> Finding:
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
    return replace(report, verdicts={**report.verdicts, verdict: outcome})
