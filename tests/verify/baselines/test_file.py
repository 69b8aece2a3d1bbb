"""A baseline as a file: what a slip of whoever edits it leads to."""

import json
from pathlib import Path
from typing import Any

import pytest

from truenorm.verify.baseline import SCHEMA, read, write
from truenorm.verify.grading.report import Known

ENTRY = {
    "subject": "kernel",
    "operation": "layer_norm",
    "dtype": "float32",
    "output": "y",
    "check": "accuracy",
    "families": ["offset"],
    "grade": "unstable",
    "reason": "one pass: issue 12",
}


def saved(folder: Path, told: Any) -> Path:
    file = folder / "known.json"
    file.write_text(told if isinstance(told, str) else json.dumps(told), encoding="utf-8")
    return file


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = saved(tmp_path, {"schema": SCHEMA, "findings": [ENTRY]})
    assert read(file) == (Known(**{**ENTRY, "families": ("offset",)}),)  # type: ignore[arg-type]
    write(read(file), file)
    assert json.loads(file.read_text(encoding="utf-8"))["findings"] == [ENTRY]
    assert file.read_text(encoding="utf-8").endswith("}\n")


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("{", "cannot be read"),
        ([], "is no baseline that this version reads"),
        ({"schema": "truenorm/baseline-2", "findings": []}, "is no baseline that this version"),
        ({"schema": SCHEMA}, 'and a list "findings"'),
        ({"schema": SCHEMA, "findings": [7]}, r"findings\[0\] is no object"),
        (
            {"schema": SCHEMA, "findings": [ENTRY | {"raeson": "typo"}]},
            r"findings\[0\] has 'raeson'; known are subject",
        ),
        (
            {"schema": SCHEMA, "findings": [{"subject": "kernel"}]},
            r"findings\[0\] has no 'operation'",
        ),
        (
            {"schema": SCHEMA, "findings": [ENTRY | {"families": "offset"}]},
            "families that are no list of strings",
        ),
        (
            {"schema": SCHEMA, "findings": [ENTRY | {"reason": None}]},
            "has a reason that is no string",
        ),
        (
            {"schema": SCHEMA, "findings": [ENTRY | {"grade": "good"}]},
            "is about 'accuracy' with the grade 'good'",
        ),
        (
            {"schema": SCHEMA, "findings": [ENTRY | {"check": "repeat"}]},
            "is about 'repeat' with the grade 'unstable'",
        ),
        (
            {"schema": SCHEMA, "findings": [ENTRY, ENTRY | {"reason": "other"}]},
            r"findings\[1\] is about the same as findings\[0\]",
        ),
    ],
)
def test_a_slip_is_explained(tmp_path: Path, told: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(saved(tmp_path, told))


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be read"):
        read(file)
    with pytest.raises(ValueError, match="cannot be read"):
        read(tmp_path)
