"""Text, JSON, figures, and what importing them loads."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.tools.screen import printed
from truenorm.tools import strict_json, text
from truenorm.tools.rich_tables import plain_text, rich_table


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.5, "0.50"),
        (3.14, "3.1"),
        (24.4, "24"),
        (9999.0, "9999"),
        (2.4e5, "2.4e5"),
        (1e300, "1.0e300"),
        (0.01, "0.01"),
        (0.0012, "1.2e-3"),
        (-0.5, "-0.50"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
    ],
)
def test_numbers(value: float, words: str) -> None:
    assert text.number(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(99.94, "99.9"), (99.96, "100"), (9.996, "10.0"), (1e-4, "0.000100")]
)
def test_three_digits(value: float, words: str) -> None:
    assert text.three_digits(value) == words


@pytest.mark.parametrize("shape", ["4096", "8x16x32"])
def test_shapes_are_parsed(shape: str) -> None:
    assert "x".join(map(str, text.parse_shape(shape))) == shape
    assert text.parse_shape(shape.upper()) == text.parse_shape(shape)


@pytest.mark.parametrize(
    "shape", ["", "x", "4x", "0x5", "2x0x3", "-3x4", "4*5", "4x5.0", "2x 3", "9" * 5000]
)
def test_invalid_shapes(shape: str) -> None:
    with pytest.raises(ValueError, match="shape must be like 4096x5120"):
        text.parse_shape(shape)


def test_control_characters_are_escaped() -> None:
    assert text.one_line("a\n\t b\x1b[2J\x9b\u202e\ud800") == r"a b\x1b[2J\x9b\u202e\ud800"
    assert text.one_line("µ🙂") == "µ🙂"
    assert text.printable("a  b\x07") == r"a  b\x07"


def test_home_folder_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/alice"))
    assert text.without_home("/home/alice/x /home/alicey") == "~/x /home/alicey"
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert text.without_home("/x") == "/x"


def test_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", fail)
    assert text.without_home("/x") == "/x"


def read(text: str) -> Any:
    return json.loads(text, parse_constant=pytest.fail)


@dataclasses.dataclass
class Error:
    """A part of a report."""

    name: str
    ulp: tuple[object, ...]


def test_json_of_nonfinite_numbers_and_dataclasses() -> None:
    values = (math.inf, -math.inf, math.nan, np.float64("nan"), 1.5, None, True, 3)
    expected = ["inf", "-inf", "nan", "nan", 1.5, None, True, 3]
    assert read(strict_json.dumps([Error("y", values)])) == [{"name": "y", "ulp": expected}]


def test_json_round_trip() -> None:
    value = {"a": [1.5, "text", None, {"b": math.inf, "c": [-math.inf]}]}
    assert strict_json.loads(strict_json.dumps(value)) == value
    assert math.isnan(strict_json.loads(strict_json.dumps(math.nan)))


def test_json_is_ascii() -> None:
    """Any terminal can print it."""
    text = strict_json.dumps("µ\x1b🙂")
    assert text.isascii()
    assert read(text) == "µ\x1b🙂"


def test_json_file_in_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    text = strict_json.write({"a": math.nan}, path)
    assert path.read_text(encoding="utf-8") == text + "\n"
    assert read(text) == {"a": "nan"}


def test_rich_table_wraps_only_the_columns_that_may_wrap() -> None:
    def show(console: Any) -> None:
        table = rich_table("lrw", ["name", "ms", "note"])
        table.add_row("copy", "1.5", plain_text("[red]" + "x" * 20 + "\x1b[2J"))
        console.print(table)

    lines = [line.rstrip() for line in printed(show, width=30).splitlines()]
    assert lines == [
        "name   ms  note",
        "copy  1.5  [red]xxxxxxxxxxxxxx",
        "           xxxxxx\\x1b[2J",
    ]


def test_importing_tools_loads_neither_numpy_nor_rich_nor_matplotlib() -> None:
    names = ("machine", "progress", "strict_json", "text")
    program = f"import sys; from truenorm.tools import {', '.join(names)}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert "truenorm.tools.text" in loaded
    assert not {"numpy", "rich", "matplotlib"}.intersection(loaded)
