"""Annotations and the summary of a job of GitHub."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from shared.cli.recording import record, run
from shared.verify.fake_report import NASTY, failing_report, finding, made, passing_report
from truenorm.verify.report.github import annotations, summary


def test_a_report_that_passes_has_no_annotation() -> None:
    assert annotations(passing_report()) == []
    lines = summary(passing_report()).splitlines()
    assert lines[0] == "## PASS: good"
    assert lines[4:] == [
        "| type | output | grade | max ulp | slope | worst case |",
        "| --- | --- | --- | --- | --- | --- |",
        "| float64 | y | correct | 0.50 | - | float64-normal-8x64 |",
        "",
    ]


def test_one_annotation_for_each_finding_of_its_own() -> None:
    first, second = finding(), finding("special", output="dx")
    report = made(first, replace(second, follows=1), replace(second, known=True))
    assert annotations(report) == [
        "::error title=truenorm%3A y%2C float32%2C accuracy::y is off (case float32-offset-4x67)"
    ]
    text = summary(report)
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### 1. y, float32, accuracy",
        "### 2. dx, float32, special values",
    ]


def test_a_grade_that_is_too_low_is_annotated() -> None:
    (line,) = annotations(made(of_y="unstable"))
    assert line == "::error title=truenorm%3A kernel::below stable: y in float32 (1.0 units)."


@pytest.mark.parametrize(("source", "line"), [
    ("\n\ndef kernel(x):\n    pass\n", 3),
    ("kernel = 1\n", 1),
    ("import numpy\nother = kernel = 1\n", 2),
    ("other = 1\n", 1),
    ("this is no Python\n", 1),
])  # fmt: skip
def test_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, line: int) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "a,b.py"
    file.write_text(source)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    (annotation,) = annotations(made(finding()), f"{file}:kernel")
    assert annotation.startswith(f"::error file=in/a%2Cb.py,line={line},title=")
    for elsewhere in ("torch:torch.nn.functional.rms_norm", "package.module:kernel", ""):
        assert annotations(made(finding()), elsewhere)[0].startswith("::error title=")


def test_text_of_the_subject_is_text() -> None:
    """It is no command of GitHub, no HTML and no Markdown."""
    report = failing_report()
    hostile = replace(report.findings[1], symptom=f"a\n::warning::%0A\r{NASTY}\n## b `c` *d*")
    report = replace(report, findings=(hostile, *report.findings[2:]))
    lines = annotations(report)
    assert len(lines) == 4
    assert all(line.startswith("::error ") and "\n" not in line for line in lines)
    assert "a ::warning::%250A " in lines[0]
    text = summary(report)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert r"\#\# b \`c\` \*d\*" in text


def test_a_reproducer_cannot_end_its_fence() -> None:
    code = 'text = """\n```\n# <b>\n````\n"""'
    text = summary(made(replace(finding(), reproducer=code)))
    assert f"\n`````python\n{code}\n`````\n\n</details>" in text


def test_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The summary is appended; stdout has the report alone."""
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    record(monkeypatch, "truenorm.cli.verify.verify_target", failing_report())
    done = run("verify", "x.py", "--json", "--github", file)
    assert done.exit_code == 1
    assert done.stdout.startswith("{")
    assert done.stderr.count("::error ") == 5
    assert file.read_text(encoding="utf-8").startswith("before\n## FAIL: my kernel")
    record(monkeypatch, "truenorm.cli.judge.judge_recording", made(finding()))
    (tmp_path / "results").mkdir()
    (tmp_path / "kernel.py").write_text("\ndef mine(): pass\n")
    header = {"target": f"{(tmp_path / 'kernel.py').as_posix()}:mine"}
    (tmp_path / "results" / "log.jsonl").write_text(f"{json.dumps(header)}\n")
    done = run("judge", tmp_path, "--github", file)
    assert done.exit_code == 1
    assert f"{tmp_path.name}/kernel.py,line=2,title=" in done.stderr
