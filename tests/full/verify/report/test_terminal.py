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
from truenorm.verify.suite import cases


def shown(report: Report, *, width: int = 200, terminal: bool = False) -> str:
    stream = io.StringIO()
    show(report, Console(file=stream, width=width, force_terminal=terminal, highlight=False))
    return stream.getvalue()


def line_with(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(start))


@pytest.mark.parametrize(
    ("name", "ulp"), [("correct", "0.50"), ("faithful", "0.50"), ("stable", "-"), ("wrong", "-")]
)
def test_ulp_only_if_the_grade_depends_on_it(name: str, ulp: str) -> None:
    """A stable result may have an error of 1e29 ulp where terms cancel."""
    report = passing_report()
    grades = (dataclasses.replace(report.grades[0], grade=name),)
    row = line_with(shown(dataclasses.replace(report, grades=grades)), "float64").split()
    assert row[:4] == ["float64", "y", name, ulp]


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


def test_nothing_but_code_is_wider_than_the_terminal() -> None:
    report, name = failing_report(), longest_name()
    findings = tuple(
        dataclasses.replace(each, case=name, also_in=1000, reproducer="")
        for each in report.findings
    )
    text = shown(dataclasses.replace(report, findings=findings), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count(f"case  {name} (and 1000 more)") == len(findings)
