"""JSON for any parser, whatever the numbers are."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from truenorm.tools import strict_json


def read(text: str) -> Any:
    return json.loads(text, parse_constant=pytest.fail)


@dataclasses.dataclass
class Error:
    """Something a report holds."""

    name: str
    ulp: tuple[object, ...]


def test_numbers_that_are_not_finite_are_strings_and_dataclasses_objects() -> None:
    values = (math.inf, -math.inf, math.nan, np.float64("nan"), 1.5, None, True, 3)
    said = ["inf", "-inf", "nan", "nan", 1.5, None, True, 3]
    assert read(strict_json.dumps([Error("y", values)])) == [{"name": "y", "ulp": said}]


def test_there_and_back() -> None:
    value = {"a": [1.5, "text", None, {"b": math.inf, "c": [-math.inf]}]}
    assert strict_json.loads(strict_json.dumps(value)) == value
    assert math.isnan(strict_json.loads(strict_json.dumps(math.nan)))


def test_text_survives_and_is_ascii() -> None:
    """Whatever the encoding of the terminal is, it can be printed."""
    text = strict_json.dumps("µ\x1b🙂")
    assert text.isascii()
    assert read(text) == "µ\x1b🙂"


def test_a_file_in_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "new" / "found.json"
    text = strict_json.write({"a": math.nan}, path)
    assert path.read_text(encoding="utf-8") == text + "\n"
    assert read(text) == {"a": "nan"}
