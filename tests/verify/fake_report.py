"""Reports made by hand, to see how they are shown; one has whatever could break a page."""

import math

from truenorm.verify.grading.report import VERDICTS, CaseResult, Finding, Grade, Report
from truenorm.verify.operations import LAYER_NORM, OUTPUTS

NASTY = "<script>alert('x')</script> [bold]no[/bold] [/] {{ 7*7 }} \"q\" & µ🙂 $x_"
"""Markup of HTML, Rich, Jinja, and Matplotlib, and characters beyond ASCII."""
ESCAPES = "\x1b[31mred\x07\u202e"
"""What would command a terminal."""

ROUNDOFFS = {"float16": 2.0**-11, "float32": 2.0**-24}
POWERS = {
    ("float16", "y"): 1,
    ("float32", "y"): 2,
    ("float32", "dx"): 2,
    ("float32", "dgamma"): 1,
}
REPRODUCER = f"""\
# {NASTY}
import truenorm.verify as tv
case = tv.case("float32-offset-1e4-4x67")
if case.x.shape[0] > 1 and case.x.shape[1] < 1000:
    print("{"a long line, which must not be wrapped " * 4}")
"""


def sweep(dtype: str, output: str) -> list[CaseResult]:
    """Return errors that grow like a power of kappa until the type has no digits left."""
    power, largest = POWERS.get((dtype, output), 0), 1 / ROUNDOFFS[dtype]
    found = []
    for step in range(17 if dtype == "float32" else 9):
        kappa = 10 ** (step / 2)
        natural = min(0.6 * (1 + step % 3) * kappa**power, largest)
        if power == 2 and step > 13:
            natural = math.inf
        what = (f"{dtype}-offset-1e{step / 2:g}-4x67", dtype, "offset", "sweep", output)
        found.append(CaseResult(*what, 3 * natural, natural, 10.0, power, False, kappa))
    return found


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
            ),
            Finding("raised", "runs", "float16", "", NASTY, "", f"raised\n{NASTY}\n{ESCAPES}"),
            *(
                Finding(
                    *("batch", "batch-invariant", "float32", output, "float32-batch-300x48", ""),
                    f"{output} of row 3 changes with the batch",
                    cause=f"{output} is, to 1 ulp, another <b>one</b>",
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
    said = ("good", "full", "correct", (grade,), verdicts, (), tuple(results), 1, 0.25)
    return Report(*said, operation=LAYER_NORM)
