"""What a terminal, a pipe and an old encoding get to see."""

import dataclasses
import io

import pytest
from rich.console import Console

from truenorm.verify.report import Report
from truenorm.verify.terminal import REPRODUCERS, show
from verify.fake_report import NASTY, failing_report, passing_report


def shown(report: Report, *, width: int = 200, terminal: bool = False) -> str:
    stream = io.StringIO()
    show(report, Console(file=stream, width=width, force_terminal=terminal, highlight=False))
    return stream.getvalue()


def line_with(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(start))


def test_a_row_for_each_type_and_output() -> None:
    lines = shown(failing_report()).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("type"))
    rows = [line.split() for line in lines[start + 1 : start + 9]]
    assert rows[0] == ["float16", "y", "conditional", "6144", "2048", "1.0", rows[0][-1]]
    assert rows[1][:2] == ["dx", "stable"]
    assert rows[4] == ["float32", "y", "unstable", "inf", "inf", "2.0", "float32-offset-1e8-4x67"]
    assert rows[7] == ["dbeta", "stable", "3.6", "1.2", "-", "float32-offset-1e8-4x67"]


def test_verdicts_in_signs_and_words() -> None:
    text = shown(failing_report())
    assert line_with(text, "✗").split()[:3] == ["✗", "fail", "runs"]
    assert line_with(text, "✓").split()[:3] == ["✓", "pass", "repeatable"]
    assert line_with(text, "-  not").split()[:5] == ["-", "not", "judged", "own", "state"]
    assert "the same bits when called twice" in text


def test_findings_are_numbered_and_complete() -> None:
    text = shown(failing_report())
    assert line_with(text, "1  ") == "   1  y[2, 5] is NaN, the answer is 0.7310586".ljust(
        len(line_with(text, "1  "))
    )
    assert "case  float32-offset-1e4-4x67 (and 11 more)" in text
    assert "why  standard deviation 1, mean 10000" in text
    assert "seen  pytorch#51102 https://github.com/pytorch/pytorch/issues/51102" in text
    assert "onnxruntime#28463 https://github.com/microsoft/onnxruntime/issues/28463" in text
    assert line_with(text, "5  ").split()[:3] == ["5", "dbeta", "of"]


def test_the_first_reproducers_can_be_copied_from_a_narrow_terminal() -> None:
    report = failing_report()
    text = shown(report, width=60)
    assert report.findings[0].reproducer in text
    for place, finding in enumerate(report.findings, 1):
        if finding.reproducer:
            assert (finding.reproducer in text) == (place <= REPRODUCERS)


@pytest.mark.parametrize("terminal", [False, True])
def test_foreign_text_is_neither_markup_nor_a_command(terminal: bool) -> None:
    text = shown(failing_report(), terminal=terminal)
    assert text.count(NASTY) == 4  # subject, case, symptom and reproducer
    assert "\x1b[31mred\x07" not in text
    assert r"\x1b[31mred\x07\u202e" in text
    assert "\u202e" not in text


def test_colours_on_a_terminal_only() -> None:
    assert "\x1b[" in shown(failing_report(), terminal=True)
    assert "\x1b[" not in shown(failing_report())


def test_the_last_line_says_what_to_do() -> None:
    last = shown(failing_report()).rstrip().splitlines()[-1]
    assert last.startswith("FAIL  5 findings; below stable: y in float16")
    assert "Run the reproducer of finding 1" in last
    assert "--html FILE" in last
    last = shown(passing_report()).rstrip().splitlines()[-1]
    assert last == "PASS  No finding, and every grade is at least correct."
    below = dataclasses.replace(failing_report(), findings=())
    last = shown(below).rstrip().splitlines()[-1]
    assert "Look at the worst cases" in last
    assert "reproducer" not in last


def test_old_encodings_get_other_signs() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace")
    show(failing_report(), Console(file=stream, width=200, highlight=False))
    stream.flush()
    text = raw.getvalue().decode("ascii")
    assert line_with(text, "x ").split()[:3] == ["x", "fail", "runs"]
    assert line_with(text, "+").split()[:3] == ["+", "pass", "repeatable"]
