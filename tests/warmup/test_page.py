"""A report for people: a line for each pass, and what is left of it."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from truenorm.warmup import Report, Step
from truenorm.warmup.page import conclusion, show

STEPS = (
    Step("layer_norm", "bfloat16", "correct", "forward", 48, 3, 20.46),
    Step("layer_norm", "bfloat16", "correct", "backward", 1, 0, 61.2),
)
REPORT = Report(STEPS, Path("/kept/kernels-01"), 120, notes=("a note\x1b[2J",))


def shown(report: Report) -> str:
    file = io.StringIO()
    show(report, Console(file=file, width=80, highlight=False))
    return file.getvalue()


def test_whole() -> None:
    assert shown(REPORT).splitlines() == [
        "type      mode     pass      compiled  loaded       time",
        "bfloat16  correct  forward         48       3     20.5 s",
        "bfloat16  correct  backward         1       0  1 min 1 s",
        "",
        "49 functions compiled, in 1 min 22 s. Kept for the next process: "
        f"{Path('/kept/kernels-01')}, 120 functions.",
        r"a note\x1b[2J",
    ]


def test_several_norms_are_named() -> None:
    others = tuple(replace(step, operation="rms_norm") for step in STEPS)
    lines = shown(replace(REPORT, steps=STEPS + others)).splitlines()
    assert lines[0] == "norm        type      mode     pass      compiled  loaded       time"
    names = [line.split()[0] for line in lines[1:5]]
    assert names == ["layer_norm", "layer_norm", "rms_norm", "rms_norm"]


def test_nothing_new() -> None:
    steps = tuple(replace(step, compiled=0) for step in STEPS)
    assert conclusion(replace(REPORT, steps=steps)).startswith("Nothing had to be compiled, in 1 ")


def test_nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the user is nobody's business."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("USERPROFILE", "/home/me")
    text = conclusion(replace(REPORT, folder=None, why_not="/home/me/x is not ours alone"))
    assert "Nothing can be kept, and every process compiles again:" in text
    assert text.endswith("x is not ours alone; truenorm doctor says what to do.")
    assert "me/" not in text


def test_as_data() -> None:
    found = REPORT.as_dict()
    assert (found["compiled"], found["seconds"]) == (49, 20.46 + 61.2)
    assert (found["steps"], found["functions"]) == (STEPS, 120)
