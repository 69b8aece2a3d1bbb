"""``truenorm verify`` and ``compare``: options and exit codes, baselines."""

import json
from pathlib import Path
from typing import get_args
from unittest.mock import ANY

import pytest

from shared.cli.recording import record, run
from shared.verify.fake_report import failing_report, finding, made, passing_report
from truenorm.cli.common import Dtype, LevelName
from truenorm.cli.judging import GradeName
from truenorm.verify.baseline import compare_with_baseline, read_baseline
from truenorm.verify.equality import Equality
from truenorm.verify.grading.report import GRADES, Report
from truenorm.verify.operations import LAYER_NORM
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.suite import LEVELS
from truenorm.verify.types import FORMATS

VERIFY_TARGET = "truenorm.cli.verify.verify_target"
WORK = {"verify": "target", "compare": "targets"}
"""Commands, and how the names of the functions that do their work end."""


@pytest.mark.parametrize(("report", "code"), [(passing_report(), 0), (failing_report(), 1)])
def test_options_and_exit_code(monkeypatch: pytest.MonkeyPatch, report: Report, code: int) -> None:
    calls = record(monkeypatch, VERIFY_TARGET, report)
    done = run("verify", "x.py")
    assert (done.exit_code, done.stderr) == (code, "")
    options = (
        "--level full --require faithful --dtype float16 --dtype float64 --start-seconds 7 "
        "--operation rms_norm --recipe early --largest 1e4 --kappa 10 --strict "
        "--shape 4x5 --shape 6x7 --data a.npz --baseline known.json --batch warn "
        "--time 9"
    )
    run("verify", "x.py:mine", *options.split())
    default = {
        "operation": None, "recipe": "", "largest": None, "kappa": None, "shapes": (), "data": (),
        "level": "quick", "require": "stable", "strict": False, "dtypes": None,
        "start_seconds": 120.0, "baseline": None, "jobs": 1, "progress": ANY,
        "batch": "require", "time": 60.0,
    }  # fmt: skip
    other = default | {
        "operation": "rms_norm", "recipe": "early", "largest": 1e4, "kappa": 10.0,
        "shapes": ["4x5", "6x7"], "data": [Path("a.npz")], "level": "full", "require": "faithful",
        "strict": True, "dtypes": ["float16", "float64"], "start_seconds": 7.0,
        "baseline": Path("known.json"), "batch": "warn", "time": 9.0,
    }  # fmt: skip
    assert calls == [(("x.py",), default), (("x.py:mine",), other)]


def test_choices_are_those_of_the_judge() -> None:
    assert get_args(LevelName) == LEVELS
    assert get_args(GradeName) == GRADES
    assert {str(each) for each in Dtype} == set(FORMATS)


def test_cannot_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run the real judge, then judges that raise."""
    done = run("verify", tmp_path / "nothing.py")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nothing.py" in done.stderr
    assert "Traceback" not in done.stderr
    for command, targets in WORK.items():
        record(monkeypatch, f"truenorm.cli.{command}.{command}_{targets}", CannotRunError("no"))
        done = run(command, "x.py", *(["y.py"] if command == "compare" else []))
        assert (done.exit_code, done.stdout, done.stderr) == (2, "", "truenorm: no\n")


def test_updated_baseline_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = made(finding(), finding("repeat"))
    calls = record(monkeypatch, VERIFY_TARGET, report)
    file = tmp_path / "known.json"
    done = run("verify", "x.py", "--baseline", file, "--update-baseline")
    assert done.exit_code == 0
    assert done.stderr == f"wrote {file}: 2 findings\n"
    assert "2 known (baseline), 0 new, 0 vanished" in done.stdout
    assert calls[0][1]["baseline"] is None  # it did not exist
    assert [each.check for each in read_baseline(file)] == ["accuracy", "repeat"]
    # The judge itself compares a report with a baseline.
    before = file.read_bytes()
    record(monkeypatch, VERIFY_TARGET, compare_with_baseline(report, read_baseline(file)))
    assert run("verify", "x.py", "--baseline", file).exit_code == 0
    fewer = compare_with_baseline(made(finding()), read_baseline(file))
    calls = record(monkeypatch, VERIFY_TARGET, fewer)
    assert run("verify", "x.py", "--baseline", file).exit_code == 0
    assert file.read_bytes() == before
    done = run("verify", "x.py", "--baseline", file, "--update-baseline", "--json")
    assert done.stderr == f"wrote {file}: 1 known (baseline), 0 new, 1 vanished before\n"
    assert json.loads(done.stdout)["baseline"]["known"] == 1
    assert calls[1][1]["baseline"] == file
    assert [each.check for each in read_baseline(file)] == ["accuracy"]
    record(monkeypatch, VERIFY_TARGET, compare_with_baseline(report, read_baseline(file)))
    done = run("verify", "x.py", "--baseline", file)
    assert done.exit_code == 1
    assert "1 known (baseline), 1 new, 0 vanished" in done.stdout


def test_baseline_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record(monkeypatch, VERIFY_TARGET, passing_report())
    for options, message in (
        (["--update-baseline"], "--update-baseline needs --baseline FILE"),
        (["--update-baseline", "--baseline", tmp_path / "no" / "x.json"], "in a folder that"),
        (["--update-baseline", "--baseline", tmp_path], "in a folder that"),
    ):
        done = run("verify", "x.py", *options)
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in done.stderr


def test_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = record(monkeypatch, VERIFY_TARGET, passing_report())
    assert run("verify", "x.py", "--jobs", 3).exit_code == 0
    assert calls[0][1]["jobs"] == 3


def test_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both targets, the level and the options of a subject reach the comparison."""
    equal = Equality("a", "b", "full", 2, (), (), 0, 0, 0, {"date": "today"}, operation=LAYER_NORM)
    calls = record(monkeypatch, "truenorm.cli.compare.compare_targets", equal)
    done = run(
        "compare", "a.py", "b.py", "--level", "full", "--shape", "4x5", "--dtype", "float16"
    )
    assert (done.exit_code, done.stderr) == (int(not equal.passed), "")
    ((arguments, options),) = calls
    assert arguments == ("a.py", "b.py")
    chosen = {name: options[name] for name in ("level", "shapes", "dtypes", "operation")}
    assert chosen == {"level": "full", "shapes": ["4x5"], "dtypes": ["float16"], "operation": None}
