"""JSON reports: complete, strict, and valid by the published schemas."""

import dataclasses
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import truenorm.verify as tv
from shared.verify.fake_report import (
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
from shared.verify.quantized.kernels import Kernel, quantized_norm
from truenorm.verify.baseline import compare_with_baseline, updated_entries
from truenorm.verify.grading.report import Report, TooSlow
from truenorm.verify.report.json_report import to_json


def refuse(constant: str) -> Any:
    raise ValueError(constant)


def test_report_is_complete_and_strict() -> None:
    report = failing_report()
    text = to_json(report)
    assert text.isascii()  # any terminal can print it
    content = json.loads(text, parse_constant=refuse)
    fields = {field.name for field in dataclasses.fields(Report)}
    assert content.keys() == {"schema", "passed"} | fields
    assert content["operation"] == report.operation.name
    assert content["subject"] == f"my kernel {NASTY}{ESCAPES}"
    assert len(content["results"]) == len(report.results)
    assert content["findings"][0]["reproducer"] == report.findings[0].reproducer
    assert (content["findings"][0]["cause"], content["findings"][0]["tried"]) == ("", 99)
    assert content["findings"][0]["sources"] == list(report.findings[0].sources)
    assert content["machine"] == report.machine
    assert content["passed"] is False
    assert json.loads(to_json(passing_report()))["passed"] is True
    assert content["grades"][4]["max_ulp"] == "inf"
    assert "nan" in [each["natural"] for each in content["results"]]


SCHEMAS = Path(__file__).parents[4] / "docs" / "_static" / "schema"


def closed(schema: Any) -> Any:
    """Return a schema that refuses unknown keys: additions must be published."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(each) for name, each in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        inner["additionalProperties"] = False
    return inner


@cache
def validator(name: str) -> Any:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(closed(schema))


def schema_errors(name: str, content: Any) -> list[str]:
    assert content["schema"] == f"truenorm/{name}"
    return [error.message for error in validator(name).iter_errors(content)]


def reports() -> Iterator[tv.Report]:
    yield failing_report()
    yield passing_report()
    slow = (TooSlow("float32", "rows", 1, 2, 3.5),)
    yield dataclasses.replace(passing_report(), too_slow=slow)
    real = judged(KERNEL)
    yield real
    yield compare_with_baseline(real, updated_entries(real, ()))
    yield compare_with_baseline(made(of_y="stable"), updated_entries(made(finding()), ()))
    yield compare_with_baseline(
        made(finding(), of_y="conditional"), updated_entries(made(finding()), ())
    )
    yield judged(tv.Subject(wide, dtypes=["float16"]), ["float16-normal-4x17"])
    norm = quantized_norm("rms_norm,quant=int8,scale=per-token")
    yield judged(Kernel(norm).subject(), ["bfloat16-normal-64x16"])


def test_reports() -> None:
    for report in reports():
        content = json.loads(to_json(report))
        assert schema_errors("report-1", content) == []


def test_equality() -> None:
    other = tv.Subject(wide, name="wide")
    cases = [tv.case("float32-normal-4x17"), tv.case("float32-nan-in-x")]
    broken = tv.Subject(lambda x, *_: x[:1], name="broken")
    for second in (KERNEL, other, broken):
        content = json.loads(to_json(tv.compare(KERNEL, second, cases=cases)))
        assert schema_errors("equality-1", content) == []


def test_baseline(tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    tv.update_baseline(made(finding(), finding("repeat")), file)
    content = json.loads(file.read_text(encoding="utf-8"))
    assert schema_errors("baseline-1", content) == []
    for entry in content["findings"]:
        broken = {**content, "findings": [{**entry, "grade": "good"}]}
        assert schema_errors("baseline-1", broken)


def test_schema_refuses_missing_added_and_wrong_fields() -> None:
    content = json.loads(to_json(made(finding())))
    assert schema_errors("report-1", content) == []
    for name in content.keys() - {"schema"}:
        others = {key: each for key, each in content.items() if key != name}
        assert schema_errors("report-1", others) != []
        assert schema_errors("report-1", {**content, name: 7.5}) != [] or name == "seconds"
    assert schema_errors("report-1", {**content, "more": 1}) != []
    content["findings"][0]["more"] = 1
    assert schema_errors("report-1", content) != []
