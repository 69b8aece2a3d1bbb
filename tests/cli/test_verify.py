"""``truenorm verify``, with a judge that has its report ready."""

from pathlib import Path
from typing import get_args

import pytest

from cli.recording import recorded, run
from truenorm.cli import verify as command
from truenorm.cli.output import Dtype, Operation
from truenorm.verify.grading.report import GRADES, Report
from truenorm.verify.operations import OPERATIONS
from truenorm.verify.runs.subject_process import CannotRunError
from truenorm.verify.suite import LEVELS
from truenorm.verify.types import FORMATS
from verify.fake_report import failing_report, passing_report


@pytest.mark.parametrize(("report", "code"), [(passing_report(), 0), (failing_report(), 1)])
def test_options_and_exit_code(monkeypatch: pytest.MonkeyPatch, report: Report, code: int) -> None:
    asked = recorded(monkeypatch, command, "verify_target", report)
    done = run("verify", "x.py")
    assert (done.exit_code, done.stderr) == (code, "")
    options = ("--level", "full", "--require", "faithful", "--dtype", "float16")
    more = ("--dtype", "float64", "--start-seconds", "7")
    what = ("--operation", "rms_norm", "--recipe", "early", "--largest", "1e4", "--kappa", "10")
    own = ("--shape", "4x5", "--shape", "6x7", "--data", "a.npz", "--baseline", "known.json")
    run("verify", "x.py:mine", *options, *more, *what, *own)
    plain = {
        "operation": "",
        "recipe": "",
        "largest": None,
        "kappa": None,
        "shapes": (),
        "data": (),
        "level": "quick",
        "require": "stable",
        "dtypes": None,
        "start_seconds": 120.0,
        "baseline": None,
    }
    other = {
        "operation": "rms_norm",
        "recipe": "early",
        "largest": 1e4,
        "kappa": 10.0,
        "shapes": ["4x5", "6x7"],
        "data": [Path("a.npz")],
        "level": "full",
        "require": "faithful",
        "dtypes": ["float16", "float64"],
        "start_seconds": 7.0,
        "baseline": Path("known.json"),
    }
    assert asked == [
        (("x.py",), {**plain, "progress": None}),
        (("x.py:mine",), {**other, "progress": None}),
    ]


def test_choices_are_those_of_the_judge() -> None:
    assert get_args(command.LevelName) == LEVELS
    assert get_args(command.GradeName) == GRADES
    assert {str(each) for each in Dtype} == set(FORMATS)
    assert [str(each) for each in Operation] == list(OPERATIONS)


def test_cannot_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The real judge, and one that refuses."""
    done = run("verify", tmp_path / "nothing.py")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nothing.py" in done.stderr
    assert "Traceback" not in done.stderr
    recorded(monkeypatch, command, "verify_target", CannotRunError("no"))
    done = run("verify", "x.py")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", "truenorm: no\n")
