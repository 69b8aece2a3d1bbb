"""``python -m truenorm.gradient_check``, as a person and as a program use it."""

import json
import subprocess
import sys

import pytest

from truenorm.gradient_check.__main__ import main


def test_prints_the_relative_error_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["dx", "dgamma", "dbeta", "PASS"]
    assert all("error" in line and "floor" in line for line in lines[:3])


def test_rms_norm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--operation", "rms_norm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["dx", "dgamma", "PASS"]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--shape", "3", "5"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["verdict"] == "PASS"
    assert record["method"] in record["why"]
    assert max(found["error"] for found in record["gradients"].values()) <= 1e-9


def test_what_is_not_a_pass_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """Where forward has lost its digits, differences say so instead of passing or failing."""
    hard = "--shape 2 9 --offset 1e8 --sigma 1e-3 --method central"
    assert main(hard.split()) == 1
    assert "INCONCLUSIVE" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", ["--shape 0", "--shape 3 -1", "--probes 0", "--seed -1", "--eps -9"]
)
def test_a_wrong_command_line_is_exit_code_2(arguments: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())
    assert stopped.value.code == 2


@pytest.mark.parametrize(("arguments", "code"), [(["--tol", "1e-300"], 1), (["--tol", "1e-3"], 0)])
def test_options_reach_the_check(arguments: list[str], code: int) -> None:
    assert main([*arguments, "--shape", "2", "5"]) == code


def test_large_arrays_are_projected(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--shape", "60", "10", "--method", "complex", "--probes", "2"])
    assert "random projections" in capsys.readouterr().out


def test_runs_as_a_module() -> None:
    command = [sys.executable, "-W", "error", "-m", "truenorm.gradient_check", "--help"]
    assert "hand-derived gradients" in subprocess.check_output(command, text=True)
