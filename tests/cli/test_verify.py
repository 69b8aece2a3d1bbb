"""``truenorm verify``, with a judge that has its report ready."""

import json
from pathlib import Path
from typing import get_args

import pytest

from cli.recording import recorded, run
from truenorm.cli import verify as command
from truenorm.cli.output import Dtype, Operation
from truenorm.cli.verify import GradeName, LevelName
from truenorm.verify.baseline import against, read
from truenorm.verify.grading.report import GRADES, Report
from truenorm.verify.operations import OPERATIONS
from truenorm.verify.running.process import CannotRunError
from truenorm.verify.suite import LEVELS
from truenorm.verify.types import FORMATS
from verify.baselines.known import finding, made
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
        "executor": None,
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
        "executor": None,
    }
    assert asked == [
        (("x.py",), {**plain, "progress": None}),
        (("x.py:mine",), {**other, "progress": None}),
    ]


def test_choices_are_those_of_the_judge() -> None:
    assert get_args(LevelName) == LEVELS
    assert get_args(GradeName) == GRADES
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


def test_a_baseline_is_written_and_then_passes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = made(finding(), finding("repeat"))
    asked = recorded(monkeypatch, command, "verify_target", report)
    file = tmp_path / "known.json"
    done = run("verify", "x.py", "--baseline", file, "--update-baseline")
    assert done.exit_code == 0
    assert done.stderr == f"wrote {file}: 2 findings\n"
    assert "2 known (baseline), 0 new, 0 vanished" in done.stdout
    assert asked[0][1]["baseline"] is None  # it was not there
    assert [each.check for each in read(file)] == ["accuracy", "repeat"]
    # The judge itself holds a report against it.
    before = file.read_bytes()
    recorded(monkeypatch, command, "verify_target", against(report, read(file)))
    assert run("verify", "x.py", "--baseline", file).exit_code == 0
    fewer = against(made(finding()), read(file))
    asked = recorded(monkeypatch, command, "verify_target", fewer)
    assert run("verify", "x.py", "--baseline", file).exit_code == 0
    assert file.read_bytes() == before
    done = run("verify", "x.py", "--baseline", file, "--update-baseline", "--json")
    assert done.stderr == f"wrote {file}: 1 known (baseline), 0 new, 1 vanished before\n"
    assert json.loads(done.stdout)["baseline"]["known"] == 1
    assert asked[1][1]["baseline"] == file
    assert [each.check for each in read(file)] == ["accuracy"]
    recorded(monkeypatch, command, "verify_target", against(report, read(file)))
    done = run("verify", "x.py", "--baseline", file)
    assert done.exit_code == 1
    assert "1 known (baseline), 1 new, 0 vanished" in done.stdout


def test_a_baseline_that_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recorded(monkeypatch, command, "verify_target", passing_report())
    for options, said in (
        (["--update-baseline"], "--update-baseline needs --baseline FILE"),
        (["--update-baseline", "--baseline", tmp_path / "no" / "x.json"], "in a folder that"),
        (["--update-baseline", "--baseline", tmp_path], "in a folder that"),
        (["--equal-to", "y.py", "--baseline", tmp_path / "x.json"], "and not for two"),
    ):
        done = run("verify", "x.py", *options)
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr
