"""``truenorm verify --cases`` and ``--jobs``, with a judge that has its answer ready."""

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from cli.recording import recorded, run
from truenorm.cli import verify as command
from truenorm.verify.campaigns import Campaign, Drawing, Judgement
from truenorm.verify.operations import LAYER_NORM
from truenorm.verify.running.process import CannotRunError
from verify.fake_report import passing_report

OF_Y = Judgement("float32", "y", "correct", 2, 40, 20, 0, 0.5, 0.0, "float32-normal-4x5-7")
CLEAN = Campaign(
    *("[red]kernel[/]", "quick", "stable", 7, 2, 2, 0, 0, 0, 40, 20, 0, (OF_Y,), ()),
    *(1.0, 0.5, 0.25, {"date": "today"}),
    operation=LAYER_NORM,
)


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        (CLEAN, 0, "PASS  Every element is stable, and nothing else is wrong."),
        (replace(CLEAN, failed=1, wrong=3), 1, "FAIL  Something is wrong in 1 of 2 cases."),
        (replace(CLEAN, cases=1, not_run=1), 1, "1 case did not run"),
        (replace(CLEAN, results=(), elements=0, left_out=2), 1, "Nothing could be judged."),
    ],
)
def test_summary(monkeypatch: pytest.MonkeyPatch, found: Campaign, code: int, said: str) -> None:
    asked = recorded(monkeypatch, command, "campaign_target", found)
    done = run("verify", "x.py", "--cases", 2, "--seed", 7, "--dtype", "float32")
    assert (done.exit_code, done.stderr) == (code, "")
    assert said in done.stdout
    assert "[red]kernel[/]" in done.stdout
    ((given, options),) = asked
    assert given == ("x.py", Drawing(2, 7, "quick", "stable"))
    assert (options["dtypes"], options["executor"]) == (["float32"], None)
    told = json.loads(run("verify", "x.py", "--cases", 2, "--json").stdout)
    assert (told["schema"], told["passed"]) == ("truenorm/campaign-1", code == 0)
    assert asked[1][0][1].seed == 1


@pytest.mark.parametrize(
    ("function", "answer", "options"),
    [("verify_target", passing_report(), ()), ("campaign_target", CLEAN, ("--cases", 2))],
)
def test_jobs(
    monkeypatch: pytest.MonkeyPatch, function: str, answer: object, options: tuple[object, ...]
) -> None:
    asked = recorded(monkeypatch, command, function, answer)
    assert run("verify", "x.py", "--jobs", 3, *options).exit_code == 0
    executor = asked[0][1]["executor"]
    assert isinstance(executor, ProcessPoolExecutor)
    assert vars(executor)["_max_workers"] == 3
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(abs, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--seed", 3), "--seed is what --cases draws with"),
        (("--cases", 0), "greater than or equal to 1"),
        (("--jobs", 0), "greater than or equal to 1"),
        (("--cases", 2, "--seed", 0), "greater than or equal to 1"),
        (("--cases", 2, "--shape", "4x5"), "--cases goes without"),
        (("--cases", 2, "--recipe", "late"), "--cases goes without"),
        (("--cases", 2, "--baseline", "a.json"), "--cases goes without"),
        (("--cases", 2, "--html", "a.html"), "--cases goes without"),
        (("--cases", 2, "--update-baseline"), "--cases goes without"),
        (("--equal-to", "y.py", "--cases", 2), "for one subject"),
        (("--equal-to", "y.py", "--seed", 4), "for one subject"),
        (("--equal-to", "y.py", "--update-baseline"), "for one subject"),
        (("--equal-to", "y.py", "--require", "correct"), "for one subject"),
        (("--equal-to", "y.py", "--jobs", 2), "for one subject"),
    ],
)
def test_what_does_not_go_together(options: tuple[object, ...], said: str) -> None:
    done = run("verify", "x.py", *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch, command, "campaign_target", CannotRunError("no"))
    done = run("verify", "x.py", "--cases", 2)
    assert (done.exit_code, done.stderr) == (2, "truenorm: no\n")
