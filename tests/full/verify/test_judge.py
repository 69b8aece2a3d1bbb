"""The judge from Python: `Subject`, its operation, `verify` and `check`."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm as tn
import truenorm.verify as tv
from shared.verify.recorded import RIGHT_FORWARD
from truenorm.verify import collecting
from truenorm.verify.judge import verify_target
from truenorm.verify.oracle import EXPECTED_BY_CASE
from truenorm.verify.report.json_report import to_json
from truenorm.verify.running.loading import load
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.types import FORMATS, Array


@pytest.mark.parametrize(("call", "message"), [
    (lambda: tv.cases("float8"), "dtype must be one of float16, .*; got 'float8'"),
    (lambda: tv.cases("float32", "thorough"), "level must be one of quick, full; got"),
    (lambda: tv.cases("float32", also=["axes"]), "also must be of no-gamma, .*; got"),
    (lambda: tv.case("float32-nothing"), "there is no case 'float32-nothing'"),
    (lambda: tv.case_from({"x": np.ones((2, 3))}, eps=-1.0), "eps must be .* at least 0"),
    (lambda: tv.Subject(), "give either forward .* or command"),
    (lambda: tv.Subject(print, command=["x"]), "give either forward .* or command"),
    (lambda: tv.Subject(command="./kernel"), "command must be a list .*, got './kernel'"),
    (lambda: tv.Subject(print, dtypes="float32"), "dtypes must be .*; got 'float32'"),
    (lambda: tv.Subject(print, dtypes=["float8"]), "dtypes must be .*; got \\['float8'\\]"),
    (lambda: tv.Subject(print, dtypes=[]), "dtypes must have at least one type"),
    (lambda: tv.Subject(print, also=["rank"]), "also must be a list of .*; got \\['rank'\\]"),
    (lambda: tv.Subject(command=["x"], also=["ranks"]), "also of a command must not have"),
    (lambda: tv.Subject(print, seconds=float("inf")), "seconds must be finite .*, got inf"),
    (lambda: replace(tv.case("float32-normal-4x5"), kind="odd"), "the kind 'odd'"),
])  # fmt: skip
def test_invalid_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(("call", "arguments", "message"), [
    (tv.verify, (print,), "expected a Subject; got <built-in function print>: use .*load"),
    (tv.verify, ("kernel.py",), "expected a Subject; got 'kernel.py'"),
    (tv.check, (None, None), "expected a Subject; got None"),
    (tv.compare, (print, print), "expected a Subject; got <built-in"),
    (tv.Subject, (3,), "forward must be a function; got 3"),
    (tv.Subject, (print, "backward"), "backward must be a function; got 'backward'"),
    (tv.case, (None,), "name must be text such as 'float32-normal-4x17'; got None"),
    (tv.load, (None,), "target must be text such as 'file.py:name'; got None"),
    (tv.case_of_shape, ("a",), "shape must be a list or tuple of .*; got 'a'"),
    (tv.case_of_shape, (None,), "shape must be a list or tuple of .*; got None"),
    (
        partial(tv.norm, groop=1),  # type: ignore[call-arg]
        ("rms_norm",),
        ".*unexpected keyword argument .groop.",
    ),
])  # fmt: skip
def test_arguments_of_another_type(
    call: Callable[..., object], arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        call(*arguments)


@pytest.mark.parametrize(("call", "subject", "options", "message"), [
    (tv.Subject, print, {"name": 3}, "name must be text; got 3"),
    (tv.Subject, print, {"seconds": "a"}, "seconds must be a number of seconds; got 'a'"),
    (tv.Subject, print, {"domain": 3}, "domain must be a truenorm.verify.Domain; got 3"),
    (tv.verify, RIGHT_FORWARD, {"own": 3}, "own must be a list of cases, .*; got 3"),
    (tv.verify, RIGHT_FORWARD, {"own": [1]}, "own must be a list of cases, .*; got 1"),
    (tv.verify, RIGHT_FORWARD, {"progress": 3}, "progress must be a function; got 3"),
])  # fmt: skip
def test_options_of_another_type(
    call: Callable[..., object], subject: object, options: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        call(subject, **options)


@pytest.mark.parametrize(("name", "words"), [
    ("level", "level must be one of quick, full; got 'good'"),
    ("require", "require must be one of wrong"),
    ("batch", "batch must be one of require, warn"),
])  # fmt: skip
def test_a_wrong_setting_is_refused_before_the_first_call(name: str, words: str) -> None:
    options: dict[str, Any] = {name: "good"}
    with pytest.raises(ValueError, match=words):
        tv.verify(tv.Subject(lambda *_: pytest.fail("called")), **options)


@pytest.mark.usefixtures("without_long_calls")
def test_subject_without_backward() -> None:
    EXPECTED_BY_CASE.clear()  # so that the first steps are those of the answers
    steps: list[tuple[int, int, str]] = []
    report = tv.verify(RIGHT_FORWARD, progress=lambda *step: steps.append(step))
    assert report.passed
    assert [each.output for each in report.grades] == ["y"]
    assert report.verdicts["own state"] == "not judged"
    assert report.verdicts["batch-invariant"] == "pass"
    assert steps[0][0] == 0
    assert steps[0][2].startswith("exact answers: float32-")
    assert steps[-1] == (steps[0][1], steps[0][1], "grading")


def test_check() -> None:
    wrong = tv.Subject(lambda x, *_: 0 * x, name="zeros")
    with pytest.raises(AssertionError, match=r"float32-normal-4x5 \(ordinary input, D = 5\): y\["):
        tv.check(wrong, tv.case("float32-normal-4x5"))
    fast = tv.case("float32-one-ulp-off")
    tv.check(RIGHT_FORWARD, fast)
    tv.check(RIGHT_FORWARD, tv.case("float32-served-64x1024"))  # elsewhere bits are compared only
    with pytest.raises(AssertionError, match="y is off by"):
        tv.check(RIGHT_FORWARD, fast, require="correct")


@pytest.mark.slow(reason="a verdict takes half a minute")
def test_any_errstate_of_the_caller() -> None:
    def ours(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        return tn.layer_norm(x, gamma, beta, eps=eps, backend="reference")

    with np.errstate(all="raise"):
        for dtype in FORMATS:
            hard = [each for each in tv.cases(dtype) if each.kind == "hard"]
            for each in [*tv.cases(dtype)[:2], *hard]:
                tv.check(tv.Subject(ours, dtypes=[dtype]), each)


@pytest.mark.usefixtures("without_long_calls")
def test_exact_answers_come_before_the_first_call() -> None:
    """A subject may set the processor to flush subnormal numbers to zero."""
    EXPECTED_BY_CASE.clear()
    counts: list[int] = []

    def forward(x: Array, *_: object) -> Array:
        counts.append(len(EXPECTED_BY_CASE))
        return x

    tv.verify(tv.Subject(forward))
    assert len(set(counts)) == 1


def test_answers_of_earlier_runs_are_dropped_once_they_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collecting, "MOST_ANSWERS", 2)
    EXPECTED_BY_CASE.clear()
    first, second = (tv.cases(dtype)[:3] for dtype in ("float16", "float32"))
    for suite in (first, second, second[:1]):
        collecting.hold_answers(suite, None)
    assert [*EXPECTED_BY_CASE] == second


SUBJECT = """
import numpy as np
import truenorm.verify as tv

def forward(x, gamma, eps):
    wide = x.astype(np.float64)
    r = 1 / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + eps)
    return (np.abs(gamma) * (wide * r)).astype(x.dtype)  # the sign of gamma is lost

subject = tv.Subject(forward, name="mine")
with_beta = tv.Subject(forward, name="mine", also=["no-beta"])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine_check.py"
    path.write_text(SUBJECT, encoding="utf-8")
    return path


@pytest.mark.usefixtures("without_long_calls")
@pytest.mark.slow(reason="a verdict in a process takes half a minute")
def test_the_operation_is_in_the_report_and_in_the_reproducer(file: Path) -> None:
    report = verify_target(f"{file}:subject", operation="rms_norm")
    assert report.operation is tv.RMS_NORM
    assert {(each.output, each.grade) for each in report.grades} == {("y", "wrong")}
    assert json.loads(to_json(report))["operation"] == "rms_norm"
    (finding,) = report.findings
    assert f"tv.load('{file}:subject', operation='rms_norm')" in finding.reproducer
    with pytest.raises(AssertionError, match="got "):
        exec(finding.reproducer, {})


def test_operation_of_a_subject_as_text() -> None:
    text = "add_rms_norm,parameters=float32"
    subject = tv.Subject(lambda x, *_: x, operation=text)
    assert subject.operation is tv.norm("add_rms_norm", parameters="float32")
    assert subject.outputs == ("y", "sum")
    assert replace(subject, operation="rms_norm").operation is tv.RMS_NORM
    assert tv.Subject(lambda x, *_: x).operation is tv.Subject.operation is tv.LAYER_NORM
    with pytest.raises(ValueError, match="operation must be one of layer_norm"):
        tv.Subject(lambda x, *_: x, operation="norm")
    with pytest.raises(TypeError, match=r"operation must be text such as 'rms_norm', .*; got 3"):
        tv.Subject(lambda x, *_: x, operation=3)  # type: ignore[arg-type]


@pytest.mark.usefixtures("without_long_calls")
def test_an_operation_that_does_not_fit_is_an_error(file: Path) -> None:
    assert load(f"{file}:subject").operation is tv.LAYER_NORM
    assert load(f"{file}:subject", "rms_norm").operation is tv.RMS_NORM
    with pytest.raises(ValueError, match="operation must be one of layer_norm"):
        load(f"{file}:subject", "batch_norm")
    with pytest.raises(CannotRunError, match=r"also must be .*no-beta"):
        verify_target(f"{file}:with_beta", operation="rms_norm")
