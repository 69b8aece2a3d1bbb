"""``python -m truenorm.gradient_check``, as a person and as a program use it."""

import json
import subprocess
import sys

import pytest

from truenorm.gradient_check.__main__ import _strict, main


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


@pytest.mark.parametrize(
    "arguments",
    [
        ["--shape", "0"],
        ["--shape", "3", "-1"],
        ["--samples", "0"],
        ["--seed", "-1"],
        ["--eps", "-9"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--tol", "1e-300"], 1), (["--eps", "1e300"], 1)]
)
def test_options_reach_the_check(arguments: list[str], code: int) -> None:
    assert main([*arguments, "--shape", "2", "5"]) == code


def test_samples_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--samples", "3"])
    assert "3 of 512 elements" in capsys.readouterr().out


def test_json_is_strict_about_numbers() -> None:
    assert _strict({"a": {"error": float("nan")}, "b": 1.5}) == {"a": {"error": "nan"}, "b": 1.5}


def test_runs_as_a_module() -> None:
    command = [sys.executable, "-W", "error", "-m", "truenorm.gradient_check", "--help"]
    assert "central differences" in subprocess.check_output(command, text=True)
