"""``truenorm verify``, with a judge that has its report ready."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner, Result

from truenorm.cli import verify as command
from truenorm.cli.app import app
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
    assert {str(each) for each in command.Dtype} == set(FORMATS)


def test_json_is_alone_on_stdout(judge: Judge) -> None:
    judge(failing_report())
    done = run("x.py", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["passed"] is False
    assert done.stderr == ""


def test_html(judge: Judge, tmp_path: Path) -> None:
    judge(failing_report())
    page = tmp_path / "report.html"
    done = run("x.py", "--html", str(page), "--json")
    assert done.exit_code == 1
    assert page.read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")
    json.loads(done.stdout)
    assert done.stderr == f"wrote {page}\n"


@pytest.mark.parametrize("name", ["", "missing/report.html"])
def test_where_no_page_can_be_is_said_before_the_run(
    judge: Judge, tmp_path: Path, name: str
) -> None:
    asked = judge(failing_report())
    done = run("x.py", "--html", str(tmp_path / name))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "give --html a file in a folder that exists" in done.stderr
    assert asked == []


def test_a_page_that_cannot_be_written_does_not_cost_the_report(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    judge(failing_report())
    monkeypatch.setattr(Path, "write_text", refuse)
    done = run("x.py", "--html", str(tmp_path / "report.html"))
    assert done.exit_code == 2
    assert "FAIL" in done.stdout
    assert "No space left on device; give --html another file" in done.stderr


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_html_without_the_extra(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    asked = judge(failing_report())
    for module in ("html_report", "kappa_plot"):
        monkeypatch.delitem(sys.modules, f"truenorm.verify.pages.{module}", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    done = run("x.py", "--html", str(tmp_path / "report.html"))
    assert done.exit_code == 2
    assert f"--html needs the package {missing}: pip install" in done.stderr
    assert asked == []


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
