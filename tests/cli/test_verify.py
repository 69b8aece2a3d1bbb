"""``truenorm verify``, with a judge that has its report ready."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner, Result

from truenorm.cli import verify as command
from truenorm.cli.app import app
from truenorm.cli.output import Dtype
from truenorm.verify.grading.report import GRADES, Report
from truenorm.verify.runs.subject_process import CannotRunError
from truenorm.verify.suite import LEVELS
from truenorm.verify.types import FORMATS
from verify.fake_report import failing_report, passing_report

Judge = Callable[[Report | Exception], list[dict[str, Any]]]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Return what puts another judge in place, and gives the list of what it was asked."""

    def replace(answer: Report | Exception) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def verify_target(target: str, **options: Any) -> Report:
            asked.append({"target": target, **options})
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(command, "verify_target", verify_target)
        return asked

    return replace


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["verify", *arguments])


@pytest.mark.parametrize(("report", "code"), [(passing_report(), 0), (failing_report(), 1)])
def test_exit_code(judge: Judge, report: Report, code: int) -> None:
    judge(report)
    done = run("x.py")
    assert done.exit_code == code
    assert done.stderr == ""
    assert done.stdout.rstrip().splitlines()[-1] != ""


def test_options_reach_the_judge(judge: Judge) -> None:
    asked = judge(passing_report())
    run("x.py")
    options = ("--level", "full", "--require", "faithful", "--dtype", "float16")
    run("x.py:mine", *options, "--dtype", "float64", "--start-seconds", "7")
    plain = {"level": "quick", "require": "stable", "dtypes": None, "progress": None}
    assert asked[0] == {"target": "x.py", **plain, "start_seconds": 120.0}
    assert asked[1] == {
        "target": "x.py:mine",
        "level": "full",
        "require": "faithful",
        "dtypes": ["float16", "float64"],
        "progress": None,
        "start_seconds": 7.0,
    }


def test_choices_are_those_of_the_judge() -> None:
    assert get_args(command.LevelName) == LEVELS
    assert get_args(command.GradeName) == GRADES
    assert {str(each) for each in Dtype} == set(FORMATS)


def test_cannot_run(judge: Judge) -> None:
    judge(CannotRunError("there is no file x.py"))
    done = run("x.py")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "truenorm: there is no file x.py\n"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The real judge this time."""
    done = run(str(tmp_path / "nothing.py"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nothing.py" in done.stderr
    assert "Traceback" not in done.stderr
