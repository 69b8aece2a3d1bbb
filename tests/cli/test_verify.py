"""``truenorm verify``: options, exit codes and baselines, with prepared reports."""

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from cli.recording import record, run
from truenorm.cli.common import Dtype, LevelName, Norm
from truenorm.cli.verify import GradeName
from truenorm.verify.baseline import compare_with_baseline, read_baseline
from truenorm.verify.campaigns import Campaign, CampaignSettings, Judgement
from truenorm.verify.grading.report import GRADES, Report
from truenorm.verify.operations import LAYER_NORM, OPERATIONS
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.suite import LEVELS
from truenorm.verify.types import FORMATS
from verify.fake_report import failing_report, finding, made, passing_report

VERIFY_TARGET = "truenorm.cli.verify.verify_target"


@pytest.mark.parametrize(("report", "code"), [(passing_report(), 0), (failing_report(), 1)])
def test_options_and_exit_code(monkeypatch: pytest.MonkeyPatch, report: Report, code: int) -> None:
    calls = record(monkeypatch, VERIFY_TARGET, report)
    done = run("verify", "x.py")
    assert (done.exit_code, done.stderr) == (code, "")
    options = (
        "--level full --require faithful --dtype float16 --dtype float64 --start-seconds 7 "
        "--operation rms_norm --recipe early --largest 1e4 --kappa 10 --strict "
        "--shape 4x5 --shape 6x7 --data a.npz --baseline known.json"
    )
    run("verify", "x.py:mine", *options.split())
    default = {
        "operation": "",
        "recipe": "",
        "largest": None,
        "kappa": None,
        "shapes": (),
        "data": (),
        "level": "quick",
        "require": "stable",
        "strict": False,
        "dtypes": None,
        "start_seconds": 120.0,
        "baseline": None,
        "executor": None,
        "progress": None,
    }
    other = default | {
        "operation": "rms_norm",
        "recipe": "early",
        "largest": 1e4,
        "kappa": 10.0,
        "shapes": ["4x5", "6x7"],
        "data": [Path("a.npz")],
        "level": "full",
        "require": "faithful",
        "strict": True,
        "dtypes": ["float16", "float64"],
        "start_seconds": 7.0,
        "baseline": Path("known.json"),
    }
    assert calls == [(("x.py",), default), (("x.py:mine",), other)]


def test_choices_are_those_of_the_judge() -> None:
    assert get_args(LevelName) == LEVELS
    assert get_args(GradeName) == GRADES
    assert {str(each) for each in Dtype} == set(FORMATS)
    assert [str(each) for each in Norm] == list(OPERATIONS)


def test_cannot_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run the real judge, then judges that raise."""
    done = run("verify", tmp_path / "nothing.py")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nothing.py" in done.stderr
    assert "Traceback" not in done.stderr
    for function, options in (("verify_target", ()), ("campaign_target", ("--cases", 2))):
        record(monkeypatch, f"truenorm.cli.verify.{function}", CannotRunError("no"))
        done = run("verify", "x.py", *options)
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
        (["--equal-to", "y.py", "--baseline", tmp_path / "x.json"], "and not for two"),
    ):
        done = run("verify", "x.py", *options)
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in done.stderr


OF_Y = Judgement("float32", "y", "correct", 2, 40, 20, 0, 0.5, 0.0, "float32-normal-4x5-7")
CLEAN = Campaign(
    *("[red]kernel[/]", "quick", "stable", 7, 2, 2, 0, 0, 0, 40, 20, 0, (OF_Y,), ()),
    *(1.0, 0.5, 0.25, {"date": "today"}),
    operation=LAYER_NORM,
)


@pytest.mark.parametrize(
    ("campaign", "code", "message"),
    [
        (CLEAN, 0, "PASS: Every element is stable, and nothing else is wrong."),
        (replace(CLEAN, failed=1, wrong=3), 1, "FAIL: Something is wrong in 1 of 2 cases."),
        (replace(CLEAN, cases=1, not_run=1), 1, "1 case did not run"),
        (replace(CLEAN, results=(), elements=0, left_out=2), 1, "Nothing could be judged."),
    ],
)
def test_campaign(
    monkeypatch: pytest.MonkeyPatch, campaign: Campaign, code: int, message: str
) -> None:
    calls = record(monkeypatch, "truenorm.cli.verify.campaign_target", campaign)
    done = run("verify", "x.py", "--cases", 2, "--seed", 7, "--dtype", "float32")
    assert (done.exit_code, done.stderr) == (code, "")
    assert message in done.stdout
    assert "[red]kernel[/]" in done.stdout
    ((arguments, options),) = calls
    assert arguments == ("x.py", CampaignSettings(2, 7, "quick", "stable"))
    assert (options["dtypes"], options["executor"]) == (["float32"], None)
    report = json.loads(run("verify", "x.py", "--cases", 2, "--json").stdout)
    assert (report["schema"], report["passed"]) == ("truenorm/campaign-1", code == 0)
    assert calls[1][0][1].seed == 1


@pytest.mark.parametrize(
    ("function", "answer", "options"),
    [("verify_target", passing_report(), ()), ("campaign_target", CLEAN, ("--cases", 2))],
)
def test_jobs(
    monkeypatch: pytest.MonkeyPatch, function: str, answer: object, options: tuple[object, ...]
) -> None:
    calls = record(monkeypatch, f"truenorm.cli.verify.{function}", answer)
    assert run("verify", "x.py", "--jobs", 3, *options).exit_code == 0
    executor = calls[0][1]["executor"]
    assert isinstance(executor, ProcessPoolExecutor)
    assert vars(executor)["_max_workers"] == 3
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(abs, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", 3), "--seed requires --cases"),
        (("--cases", 0), "greater than or equal to 1"),
        (("--jobs", 0), "greater than or equal to 1"),
        (("--cases", 2, "--seed", 0), "greater than or equal to 1"),
        (("--cases", 2, "--shape", "4x5"), "--cases cannot be combined"),
        (("--cases", 2, "--recipe", "late"), "--cases cannot be combined"),
        (("--cases", 2, "--baseline", "a.json"), "--cases cannot be combined"),
        (("--cases", 2, "--html", "a.html"), "--cases cannot be combined"),
        (("--cases", 2, "--update-baseline"), "--cases cannot be combined"),
        (("--equal-to", "y.py", "--cases", 2), "for one subject"),
        (("--equal-to", "y.py", "--seed", 4), "for one subject"),
        (("--equal-to", "y.py", "--update-baseline"), "for one subject"),
        (("--equal-to", "y.py", "--require", "correct"), "for one subject"),
        (("--equal-to", "y.py", "--jobs", 2), "for one subject"),
    ],
)
def test_options_that_exclude_each_other(options: tuple[object, ...], message: str) -> None:
    done = run("verify", "x.py", *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
