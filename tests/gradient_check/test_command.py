"""``python -m truenorm.gradient_check``, as a person and as a program use it."""

import json
import subprocess
import sys

import pytest

from truenorm.gradient_check.__main__ import main


def test_prints_the_relative_error_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["dx", "dgamma", "dbeta", "passed"]
    assert all("relative error" in line for line in lines[:3])


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--shape", "3", "5"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["passed"] is True
    assert max(found["error"] for found in record["gradients"].values()) <= 1e-9


def test_failure_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shape", "4", "17", "--offset", "1e8", "--sigma", "1e-3"]) == 1
    assert "FAILED" in capsys.readouterr().out


def test_runs_as_a_module() -> None:
    command = [sys.executable, "-W", "error", "-m", "truenorm.gradient_check", "--help"]
    assert "central differences" in subprocess.check_output(command, text=True)
