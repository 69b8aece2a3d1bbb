"""JSON reports: complete, strict, and valid by the published schemas."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import truenorm.verify as tv
from truenorm.verify.baseline import compare_with_baseline, updated_entries
from truenorm.verify.grading.report import Report
from truenorm.verify.report.json_report import to_json
from verify.fake_report import (
    ESCAPES,
    KERNEL,
    NASTY,
    failing_report,
    finding,
    judged,
    made,
    passing_report,
    wide,
)


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


SCHEMAS = Path(__file__).parents[3] / "docs" / "_static" / "schema"


def closed(schema: Any) -> Any:
    """Return a schema that also refuses what it does not name: additions must be published."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(each) for name, each in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        inner["additionalProperties"] = False
    return inner


def refusals(name: str, told: Any) -> list[str]:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    assert told["schema"] == f"truenorm/{name}"
    found = Draft202012Validator(closed(schema)).iter_errors(told)
    return [error.message for error in found]


def reports() -> Iterator[tv.Report]:
    yield failing_report()
    yield passing_report()
    real = judged(KERNEL)
    yield real
    yield compare_with_baseline(real, updated_entries(real, ()))
    yield compare_with_baseline(made(of_y="stable"), updated_entries(made(finding()), ()))
    yield compare_with_baseline(
        made(finding(), of_y="conditional"), updated_entries(made(finding()), ())
    )
    yield judged(tv.Subject(wide, dtypes=["float16"]), ["float16-normal-4x17"])


def test_reports() -> None:
    for report in reports():
        told = json.loads(to_json(report))
        assert refusals("report-1", told) == []


def test_equality() -> None:
    other = tv.Subject(wide, name="wide")
    cases = [tv.case("float32-normal-4x17"), tv.case("float32-nan-in-x")]
    broken = tv.Subject(lambda x, *_: x[:1], name="broken")
    for second in (KERNEL, other, broken):
        told = json.loads(to_json(tv.compare(KERNEL, second, cases=cases)))
        assert refusals("equality-1", told) == []


def test_baseline(tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    tv.update_baseline(made(finding(), finding("repeat")), file)
    told = json.loads(file.read_text(encoding="utf-8"))
    assert refusals("baseline-1", told) == []
    for entry in told["findings"]:
        broken = {**told, "findings": [{**entry, "grade": "good"}]}
        assert refusals("baseline-1", broken)


def test_what_is_missing_added_or_of_another_type_is_seen() -> None:
    told = json.loads(to_json(failing_report()))
    for name in told:
        if name != "schema":
            assert refusals("report-1", {key: told[key] for key in told if key != name}) != []
            assert refusals("report-1", {**told, name: 7.5}) != [] or name == "seconds"
    assert refusals("report-1", {**told, "more": 1}) != []
    told["findings"][0]["more"] = 1
    assert refusals("report-1", told) != []
