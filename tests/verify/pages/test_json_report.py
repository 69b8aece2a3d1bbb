"""A report as JSON: everything in it, and nothing that a strict parser refuses."""

import dataclasses
import json
from typing import Any

from truenorm.verify.grading.report import Report
from truenorm.verify.report.json_report import to_json
from verify.fake_report import ESCAPES, NASTY, failing_report, passing_report


def refuse(constant: str) -> Any:
    raise ValueError(constant)


def test_nothing_is_missing_and_everything_is_strict() -> None:
    report = failing_report()
    text = to_json(report)
    assert text.isascii()  # whatever the encoding of the terminal is, it can be printed
    told = json.loads(text, parse_constant=refuse)
    assert set(told) == {"schema", "passed", *(field.name for field in dataclasses.fields(Report))}
    assert told["operation"] == report.operation.name
    assert told["subject"] == f"my kernel {NASTY}{ESCAPES}"
    assert len(told["results"]) == len(report.results)
    assert told["findings"][0]["reproducer"] == report.findings[0].reproducer
    assert (told["findings"][0]["cause"], told["findings"][0]["tried"]) == ("", 99)
    assert told["findings"][0]["sources"] == list(report.findings[0].sources)
    assert told["machine"] == report.machine
    assert told["grades"][4]["max_ulp"] == "inf"
    assert "nan" in [each["natural"] for each in told["results"]]


def test_says_whether_it_is_a_pass() -> None:
    assert json.loads(to_json(failing_report()))["passed"] is False
    assert json.loads(to_json(passing_report()))["passed"] is True
