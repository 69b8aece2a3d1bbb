"""``truenorm audit``: options, output and exit codes, with a prepared audit."""

import json
from dataclasses import replace
from unittest.mock import ANY

import pytest

from shared.cli.recording import record, run
from truenorm.verify.audit.replacing import AuditTask
from truenorm.verify.audit.running import Audit, Outcome, Witness
from truenorm.verify.operations import RMS_NORM
from truenorm.verify.running.records import CannotRunError

AUDIT_TESTS = "truenorm.cli.audit.audit_tests"
WITNESS = Witness("float32-normal-4x17", "tv.case('float32-normal-4x17')", "ordinary", "y is off")
CAUGHT = Outcome("zeros", "y is 0", True, "tests/test_norm.py::test_y[4]", "y", 2.5, 2.5)
PASSED = Outcome("ddof = 1", "divided by D - 1", False, "", "y", 0.02, 2.5, WITNESS)
AUDIT = Audit(
    "mine.kernels:rms_norm",
    RMS_NORM,
    ("tests/test_norm.py",),
    3,
    0,
    ("float32",),
    (CAUGHT, PASSED, replace(PASSED, name="no gamma", output="", difference=0.0)),
    {"zeros for dx": "no gradient was asked"},
    1.5,
    {"date": "2026-11-16"},
)
REQUIRED = ("--replace", "mine.kernels:rms_norm", "--operation", "rms_norm")


@pytest.mark.parametrize(("audit", "code"), [(AUDIT, 1), (replace(AUDIT, outcomes=(CAUGHT,)), 0)])
def test_options_and_exit_code(monkeypatch: pytest.MonkeyPatch, audit: Audit, code: int) -> None:
    calls = record(monkeypatch, AUDIT_TESTS, audit)
    done = run("audit", "tests/test_norm.py", *REQUIRED)
    assert (done.exit_code, done.stderr) == (code, "")
    names = ("--backward", "mine:back", "--signature", "x, eps", "--recipe", "late")
    numbers = ("--eps", "1e-3", "--seconds", "7", "--jobs", "3")
    run("audit", "a.py", "b.py", *REQUIRED, *names, *numbers, "--", "-k", "norm")
    plain = AuditTask("mine.kernels:rms_norm", "rms_norm")
    full = AuditTask(*REQUIRED[1::2], "mine:back", "x, eps", 1e-3, "late")
    assert calls == [
        ((["tests/test_norm.py"], plain), {"seconds": 300.0, "jobs": 1, "progress": ANY}),
        ((["a.py", "b.py", "-k", "norm"], full), {"seconds": 7.0, "jobs": 3, "progress": ANY}),
    ]


def test_output(monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch, AUDIT_TESTS, AUDIT)
    shown = run("audit", "tests/test_norm.py", *REQUIRED).stdout
    lines = [line.rstrip() for line in shown.splitlines()]
    assert all(len(line) <= 80 for line in lines)
    assert "zeros         caught       y by 2.5 of 2.5      test_y[4]" in lines
    assert "ddof = 1      let it pass  y by 0.02 of 2.5" in lines
    assert "no gamma      let it pass  none" in lines
    assert "shown by  tv.case('float32-normal-4x17')" in lines
    assert "left out  zeros for dx: no gradient was asked" in lines
    assert lines[-1] == "FAIL: The tests let 2 of 3 wrong kernels pass."
    report = json.loads(run("audit", "tests/test_norm.py", *REQUIRED, "--json").stdout)
    assert (report["schema"], report["passed"], report["operation"]) == (
        "truenorm/audit-1",
        False,
        "rms_norm",
    )
    assert [each["caught"] for each in report["outcomes"]] == [True, False, False]


@pytest.mark.parametrize("error", [CannotRunError("no"), ValueError("no")])
def test_cannot_run(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    record(monkeypatch, AUDIT_TESTS, error)
    done = run("audit", "tests/test_norm.py", *REQUIRED)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", "truenorm: no\n")
