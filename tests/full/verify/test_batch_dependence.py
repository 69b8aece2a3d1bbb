"""A dependence on the batch fails, or is a warning: reports and baselines."""

import io
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import truenorm.verify as tv
from shared.verify.fake_report import wide
from truenorm.verify.baseline import compare_with_baseline, entries_of, updated_entries
from truenorm.verify.collecting import collect
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import grade_records
from truenorm.verify.report.html import to_html
from truenorm.verify.report.json_report import to_json
from truenorm.verify.report.terminal import show
from truenorm.verify.report.wording import batch_line, verdict_line
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import Array

pytestmark = pytest.mark.usefixtures("without_long_calls")
NAMES = ("float32-normal-4x17", "float32-batch-300x67")


def depends_on_the_batch(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Return y, and with many rows its upper neighbour."""
    y = wide(x, gamma, beta, eps)
    return y if len(x) < 128 else np.nextafter(y, np.float32(np.inf))


def report_of(batch: str, forward: Callable[..., Array] = depends_on_the_batch) -> Report:
    subject = tv.Subject(forward, name="kernel")
    suite = [tv.case(name) for name in NAMES]
    records = collect(InProcess(subject), suite)
    return grade_records(subject, suite, records, subject.spec(), batch=batch)


@pytest.fixture(scope="module")
def required() -> Report:
    return report_of("require")


@pytest.fixture(scope="module")
def warned() -> Report:
    return report_of("warn")


def page(report: Report) -> str:
    stream = io.StringIO()
    show(report, Console(file=stream, width=200))
    return stream.getvalue()


def test_it_fails_by_default_and_has_a_line_of_its_own(required: Report) -> None:
    assert not required.passed
    assert required.verdicts["batch-invariant"] == "fail"
    line = "batch dependence: y in float32 (required; --batch warn only warns)"
    assert batch_line(required) == line
    for text in (page(required), to_html(required)):
        assert "y in float32 (required; --batch warn only warns)" in text


def test_a_warning_passes_and_is_shown(warned: Report) -> None:
    assert warned.passed
    assert warned.verdicts["batch-invariant"] == "warn"
    assert verdict_line(warned) == "no finding, 1 warning"
    for text in (page(warned), to_html(warned)):
        assert "batch dependence: y in float32 (a warning)" in text
    content = json.loads(to_json(warned))
    assert (content["passed"], content["batch"]) == (True, "warn")
    assert [each["warning"] for each in content["findings"]] == [True]


def test_other_findings_fail_beside_a_warning() -> None:
    report = report_of("warn", lambda *values: 1.5 * depends_on_the_batch(*values))
    assert [(each.verdict, each.fails) for each in report.findings] == [
        ("accuracy", True),
        ("batch-invariant", False),
    ]
    assert not report.passed


def test_a_baseline_has_no_warning_and_keeps_entries(required: Report, warned: Report) -> None:
    assert entries_of(warned) == []
    known = entries_of(required)
    assert [each.check for each in known] == ["batch"]
    assert updated_entries(warned, known) == known
    compared = compare_with_baseline(warned, known)
    assert compared.baseline is not None
    assert (compared.baseline.known, compared.baseline.new) == (1, 0)
    assert compared.baseline.vanished == ()
    assert batch_line(compared) == "batch dependence: y in float32 (known)"
    # A warning that no entry has is not new: it does not fail.
    alone = compare_with_baseline(warned, ())
    assert alone.baseline is not None
    assert (alone.passed, alone.baseline.new) == (True, 0)


def test_no_line_without_a_dependence(warned: Report) -> None:
    assert batch_line(replace(warned, findings=())) == ""


def test_other_words_are_refused() -> None:
    with pytest.raises(ValueError, match="batch must be one of require, warn; got 'never'"):
        report_of("never")
