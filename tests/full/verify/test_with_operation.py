"""A subject without an operation of its own, judged as RMSNorm by `with_operation`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import truenorm.verify as tv
from truenorm.verify.judge import verify_target
from truenorm.verify.report.json_report import to_json
from truenorm.verify.running.loading import load
from truenorm.verify.running.records import CannotRunError

pytestmark = pytest.mark.usefixtures("without_long_calls")

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


def test_an_operation_that_does_not_fit_is_an_error(file: Path) -> None:
    assert load(f"{file}:subject").operation is tv.LAYER_NORM
    assert load(f"{file}:subject", "rms_norm").operation is tv.RMS_NORM
    with pytest.raises(ValueError, match="operation must be one of layer_norm"):
        load(f"{file}:subject", "batch_norm")
    with pytest.raises(CannotRunError, match=r"also must be .*no-beta"):
        verify_target(f"{file}:with_beta", operation="rms_norm")
