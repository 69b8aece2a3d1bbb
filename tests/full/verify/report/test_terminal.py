"""The terminal report on terminals, pipes and with old encodings."""

import dataclasses
import io
from functools import cache

import pytest
from rich.console import Console

from shared.verify.fake_report import NASTY, failing_report, passing_report
from truenorm.verify import EXTENSIONS
from truenorm.verify.grading.report import Report
from truenorm.verify.report.terminal import REPRODUCERS, show
from truenorm.verify.report.wording import LEGEND
from truenorm.verify.suite import cases


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
    assert rows[0] == ["float16", "y", "conditional", "-", "2048", "1.0", rows[0][-1]]
    assert rows[1][:2] == ["dx", "stable"]
    assert rows[4] == ["float32", "y", "unstable", "-", "inf", "2.0", "float32-offset-1e8-4x67"]
    assert rows[7] == ["dbeta", "stable", "-", "1.2", "-", "float32-offset-1e8-4x67"]


@pytest.mark.parametrize(
    ("name", "ulp"), [("correct", "0.50"), ("faithful", "0.50"), ("stable", "-"), ("wrong", "-")]
)
def test_ulp_only_if_the_grade_depends_on_it(name: str, ulp: str) -> None:
    """A stable result may have an error of 1e29 ulp where terms cancel."""
    report = passing_report()
    grades = (dataclasses.replace(report.grades[0], grade=name),)
    row = line_with(shown(dataclasses.replace(report, grades=grades)), "float64").split()
    assert row[:4] == ["float64", "y", name, ulp]


@pytest.mark.parametrize("width", [80, 120])
def test_a_legend_in_one_line_under_the_table(width: int) -> None:
    lines = [line.rstrip() for line in shown(failing_report(), width=width).splitlines()]
    place = lines.index(LEGEND)
    assert lines[place - 1].split()[0] == "dbeta"
    for word in ("ulp", "natural unit", "slope"):
        assert f"{word}: " in LEGEND


def test_verdicts_in_signs_and_words() -> None:
    text = shown(failing_report())
    assert line_with(text, "✗").split()[:3] == ["✗", "fail", "runs"]
    assert line_with(text, "✓").split()[:3] == ["✓", "pass", "repeatable"]
    assert line_with(text, "-  not").split()[:5] == ["-", "not", "judged", "own", "state"]
    assert "the same call returns the same bits" in text


def test_findings_are_numbered_and_complete() -> None:
    text = shown(failing_report())
    for line in (
        "\n           1  y[2, 5] is NaN, the answer is 0.7310586  ",
        "case  float32-offset-1e4-4x67 (and 11 more)",
        "input  standard deviation 1, mean 10000",
        "likely cause  unknown: none of 99 hypotheses matches",
        "likely cause  another <b>one</b> (matches dbeta within 1 ulp)",
        "matters  digits are lost",
        "try  add in blocks",
        "reported  pytorch#51102 https://github.com/pytorch/pytorch/issues/51102",
        "onnxruntime#28463 https://github.com/microsoft/onnxruntime/issues/28463",
    ):
        assert line in text
    assert line_with(text, "5  ").split()[:3] == ["5", "dbeta", "of"]


def test_the_first_reproducers_can_be_copied_from_a_narrow_terminal() -> None:
    report = failing_report()
    text = shown(report, width=60)
    assert report.findings[0].reproducer in text
    for place, finding in enumerate(report.findings, 1):
        if finding.reproducer:
            assert (finding.reproducer in text) == (place <= REPRODUCERS)


@pytest.mark.parametrize("terminal", [False, True])
def test_text_of_the_subject_is_escaped(terminal: bool) -> None:
    text = shown(failing_report(), terminal=terminal)
    assert text.count(NASTY) == 4  # subject, case, symptom and reproducer
    assert "\x1b[31mred\x07" not in text
    assert r"\x1b[31mred\x07\u202e" in text
    assert "\u202e" not in text
    assert ("\x1b[" in text) == terminal  # colours


def test_the_last_line_says_what_to_do() -> None:
    below = dataclasses.replace(failing_report(), findings=())
    failed, passed, low = (
        shown(report).rstrip().splitlines()[-1]
        for report in (failing_report(), passing_report(), below)
    )
    assert failed.startswith("FAIL: 5 findings; below stable: y in float16")
    assert "Run the reproducer of finding 1" in failed
    assert "--html FILE" in failed
    assert passed == "PASS: correct."
    assert "Look at the worst cases" in low
    assert "reproducer" not in low


def test_old_encodings_get_other_signs() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace")
    show(failing_report(), Console(file=stream, width=200, highlight=False))
    stream.flush()
    text = raw.getvalue().decode("ascii")
    assert line_with(text, "x ").split()[:3] == ["x", "fail", "runs"]
    assert line_with(text, "+").split()[:3] == ["+", "pass", "repeatable"]


@cache
def longest_name() -> str:
    return max((str(case) for case in cases("bfloat16", "full", EXTENSIONS)), key=len)


def test_no_row_of_the_grades_is_broken_at_80_columns() -> None:
    """The worst case is in the same table if there is room."""
    report, name = failing_report(), longest_name()
    assert shown(report, width=80).count("worst case") == 1
    assert line_with(shown(report, width=80), "type").endswith("worst case             ")
    grades = tuple(dataclasses.replace(each, worst_case=name) for each in report.grades)
    lines = shown(dataclasses.replace(report, grades=grades), width=80).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("type"))
    numbers = [line.split() for line in lines[start + 1 : start + 9]]
    assert numbers[0] == ["float16", "y", "conditional", "-", "2048", "1.0"]
    assert numbers[7] == ["dbeta", "stable", "-", "1.2", "-"]
    assert lines[start + 9].strip() == ""
    worst = [line.split() for line in lines[start + 10 : start + 19]]
    assert worst[0] == ["type", "output", "worst", "case"]
    assert worst[1] == ["float16", "y", name]
    assert worst[8] == ["dbeta", name]


def test_nothing_but_code_is_wider_than_the_terminal() -> None:
    report, name = failing_report(), longest_name()
    findings = tuple(
        dataclasses.replace(each, case=name, also_in=1000, reproducer="")
        for each in report.findings
    )
    text = shown(dataclasses.replace(report, findings=findings), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count(f"case  {name} (and 1000 more)") == len(findings)
