"""A report as JSON: everything in it, and nothing that a strict parser refuses."""

import dataclasses
import json
from typing import Any

import pytest

from truenorm.verify.grading.report import Report
from truenorm.verify.pages.json_report import to_json
from verify.fake_report import ESCAPES, NASTY, failing_report, passing_report


def refuse(constant: str) -> Any:
    raise ValueError(constant)


def test_nothing_is_missing() -> None:
    report = failing_report()
    told = json.loads(to_json(report), parse_constant=refuse)
    fields = {field.name for field in dataclasses.fields(Report)} - {"operation"}
    assert set(told) == {"passed", *fields}
    assert len(told["results"]) == len(report.results)
    assert told["findings"][0]["reproducer"] == report.findings[0].reproducer
    assert told["findings"][0]["sources"] == list(report.findings[0].sources)
    assert told["machine"] == report.machine


@pytest.mark.parametrize(
    ("report", "passed"), [(failing_report(), False), (passing_report(), True)]
)
def test_says_whether_it_is_a_pass(report: Report, passed: bool) -> None:
    assert json.loads(to_json(report))["passed"] is passed


def test_numbers_that_are_not_finite_are_strings() -> None:
    told = json.loads(to_json(failing_report()), parse_constant=refuse)
    assert told["grades"][4]["max_ulp"] == "inf"
    assert "nan" in [each["natural"] for each in told["results"]]


def test_text_survives_and_is_ascii() -> None:
    """Whatever the encoding of the terminal is, it can be printed."""
    text = to_json(failing_report())
    assert text.isascii()
    assert json.loads(text)["subject"] == f"my kernel {NASTY}{ESCAPES}"
