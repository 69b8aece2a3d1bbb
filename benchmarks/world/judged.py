"""Judge one norm of a package: its grades, its verdicts, and its errors by length and by mean."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import truenorm
from benchmarks.common import progress
from benchmarks.world.listed import ListedNorm
from truenorm.tools.progress import Progress, status_line
from truenorm.verify import Report
from truenorm.verify.calls import Call
from truenorm.verify.collecting import collect
from truenorm.verify.grading.not_judged import is_too_slow
from truenorm.verify.inputs.named import entries
from truenorm.verify.judge import RunSettings, judge_runner
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operation import Case, Operation
from truenorm.verify.report.wording import unsupported_text
from truenorm.verify.running.process import SubjectProcess
from truenorm.verify.running.records import CannotRunError, GaveUpError, Record, Runner
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array, dtype_of, ulps_of

DIGITS = 4  # of the numbers in the file; grades are computed before
LENGTHS = (64, 256, 1024, 4096, 16384, 65536)
MEANS = (0.0, 1.0, 10.0, 100.0, 1000.0, 10000.0)
LENGTH = 1024
"""Of the rows whose mean grows."""
EPS = 1e-5
EQUAL = 0.7
"""The magnitude of the elements of one row, whose signs alternate at random."""
START_SECONDS = 300.0


def judge_norm(
    norm: ListedNorm, python: Path, seconds: float, without: Collection[str] | None
) -> dict[str, Any]:
    """Return the outcome of a norm that runs in an environment.

    Its calls take at most about `seconds`: cases that do not fit are listed as too slow. Or it
    makes all calls `without` some: those that an earlier run left out.
    """
    how: dict[str, Any] = {
        "python": str(python),
        "environment": norm.package.environment,
        "start_seconds": START_SECONDS,
    }
    claims: dict[str, Any] = {"operation": norm.operation, "dtypes": norm.dtypes or None}
    settings = RunSettings(progress=progress(norm.name), batch="warn")
    slow: list[Record] = []
    try:
        with SubjectProcess(norm.path, **how, **claims) as process:

            def collecting(suite: Sequence[Case], tell: Progress | None) -> list[Record]:
                runner = process if without is None else Without(process, without)
                limit = seconds if without is None else math.inf
                records = collect(runner, suite, tell, seconds=limit)
                slow.extend(filter(is_too_slow, records))
                return records

            report = judge_runner(process, process.spec, settings, collecting)
            dtypes = [
                each
                for each in process.subject.dtypes
                if each in norm.dtypes or not claims["dtypes"]
            ]
            curves = {each: errors(process, each) for each in dtypes}
    except (CannotRunError, ValueError) as error:
        return {"outcome": "did not run", "reason": str(error).strip()[-600:]}
    status_line()
    calls = list(dict.fromkeys(call_in_words(each.case, each.call) for each in slow))
    return {"outcome": "judged", **summary(report), "without": calls, "errors": curves}


def call_in_words(case: str, call: Call) -> str:
    """Return the name of a case, and which call of the case is made unless it is the first."""
    return case if call == Call() else f"{case}: {call}"


class Without:
    """Runs a subject without the calls that an earlier run left out.

    So a second run makes the same calls, however fast the machine is.
    """

    def __init__(self, runner: Runner, calls: Collection[str]) -> None:
        self._runner, self._calls = runner, frozenset(calls)

    @property
    def subject(self) -> Subject:
        """The subject that is called."""
        return self._runner.subject

    def run(self, case: Case, call: Call) -> Record:
        """Make a call, or leave it out."""
        if {case.name, call_in_words(case.name, call)} & self._calls:
            reason = "too slow in an earlier run"
            return Record(case.name, call, left_out=reason, predicted=math.inf)
        return self._runner.run(case, call)


def summary(report: Report) -> dict[str, Any]:
    """Return what the page and the figures need of a report."""
    findings = ("verdict", "dtype", "output", "case", "symptom", "also_in", "cause", "tried")
    beyond = ("dtype", "outputs", "outcome", "limit", "least", "values", "cases")
    return {
        "operation": report.operation.spec,
        "passed": report.passed,
        "cases": report.cases,
        "left_out": report.left_out,
        "not_run": report.not_run,
        "unsupported": {unsupported_text(each): each.message for each in report.unsupported},
        "too_slow": [asdict(each) for each in report.too_slow],
        "seconds": round(report.seconds, 1),
        "grades": [shortened(asdict(each)) for each in report.grades],
        "verdicts": report.verdicts,
        "recipes": {each.dtype: each.full_name or "none" for each in report.recipes},
        "findings": [{key: getattr(each, key) for key in findings} for each in report.findings],
        "beyond": [
            shortened({key: getattr(each, key) for key in beyond}) for each in report.beyond
        ],
        "named": named_cases(report),
    }


def named_cases(report: Report) -> dict[str, list[str]]:
    """Return the named cases that were measured, each with the outputs that fail there."""
    if not report.operation.case_file:  # an option, such as no gamma, has no cases of its own
        return {}
    names = {entry["name"] for entry in entries(report.operation)}
    outcomes: dict[str, list[str]] = {}
    for each in (*report.results, *report.results_beyond):
        if each.family in names:
            failing = outcomes.setdefault(each.case, [])
            if each.needs and each.output not in failing:
                failing.append(each.output)
    return outcomes


def shortened(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its floats rounded to `DIGITS` digits."""
    return {
        name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
        for name, value in record.items()
    }


def errors(process: SubjectProcess, dtype: str) -> dict[str, dict[str, float | None]]:
    """Return the largest error of y by row length, and by mean, in ulp.

    Of an element of a norm below 1, an ulp is that of 1. A call that fails has None.
    """
    operation = process.subject.operation
    names = {each.name for each in operation.inputs}
    if not {"x"} <= names <= {"x", "gamma", "beta", "label", "dy"}:
        return {}
    curves = {"length": {str(size): rows(size, 0.0) for size in LENGTHS}}
    if "beta" in names:
        curves["mean"] = {f"{mean:g}": rows(LENGTH, mean) for mean in MEANS}
    return {
        name: {key: error_of(process, x, dtype, operation) for key, x in curve.items()}
        for name, curve in curves.items()
    }


def rows(size: int, mean: float) -> Array:
    """Return four rows of normal numbers and one of equal magnitudes, about a mean."""
    generator = np.random.default_rng(size)
    x = generator.normal(size=(5, size))
    x[4] = np.where(generator.random(size) < 0.5, -EQUAL, EQUAL)
    return x + mean


def error_of(process: SubjectProcess, x: Array, dtype: str, operation: Operation) -> float | None:
    """Return the largest error of y, with gamma = 1 and beta = 0."""
    case = case_of(x.astype(dtype_of(dtype)), dtype, operation)
    with suppress(GaveUpError):
        y = process.run(case, Call()).results.get("y")
        answer = exact(case)
        if y is not None and y.size == answer.size:
            least = 1.0 if isinstance(operation, Norm) else 0.0
            ulp = ulps_of(np.abs(answer).clip(least), dtype)
            error = float(
                (np.abs(y.astype(np.float64).reshape(answer.shape) - answer) / ulp).max()
            )
            return float(f"{error:.{DIGITS}g}")
    return None


def case_of(x: Array, dtype: str, operation: Operation) -> Case:
    """Return a case of rows; the other inputs change nothing, and labels are different."""
    kind, size = x.dtype, x.shape[1]
    shape = operation.result_shapes("y", x.shape)[-1]
    gain = 0.0 if ",gain=zero-centred" in operation.spec else 1.0
    known = {
        "x": x,
        "gamma": np.full(size, gain, kind),
        "beta": np.zeros(size, kind),
        "label": np.arange(len(x))[:, np.newaxis],
        "dy": np.random.default_rng(0).normal(size=shape).astype(kind),
    }
    fixed = getattr(operation, "eps", None)
    inputs = {each.name: known[each.name] for each in operation.inputs}
    return Case(operation, "curve", dtype, inputs, EPS if fixed is None else fixed)


def exact(case: Case) -> Array:
    """Return y in float64, with an error far below an ulp of its type."""
    if not isinstance(case.operation, Norm):
        value, remainder = np.moveaxis(case.operation.exact(case)["y"], -1, 0)
        return np.asarray(value + remainder * ulps_of(value, case.dtype))
    x = case.x.astype(np.float64)
    if any(each.name == "beta" for each in case.operation.inputs):
        return truenorm.layer_norm(x, eps=case.eps)
    return truenorm.rms_norm(x, eps=case.eps)


def verdicts_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the outcome, every grade and every verdict of a row, to compare two runs."""
    grades = {f"{each['dtype']} {each['output']}": each["grade"] for each in row.get("grades", ())}
    return {"outcome": row["outcome"], **grades, **row.get("verdicts", {})}


def differences(
    first: Iterable[Mapping[str, Any]], second: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Return what differs between two runs: outcomes, grades and verdicts, by row."""
    other = {row["name"]: verdicts_of(row) for row in second}
    texts = []
    for row in first:
        one, two = verdicts_of(row), other.get(row["name"], {})
        changed = [
            f"{key} {one.get(key)} -> {two.get(key)}"
            for key in dict.fromkeys([*one, *two])
            if one.get(key) != two.get(key)
        ]
        if changed:
            texts.append(f"{row['name']}: {', '.join(changed)}")
    return texts
