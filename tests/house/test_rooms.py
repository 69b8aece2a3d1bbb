"""Rooms stay small enough to find one's way: folders, files and lists of parameters."""

import tomllib
from collections import Counter
from pathlib import PurePosixPath

from benchmarks.rooms import ROOT, on_disk, parameters

SOURCES = on_disk()
FILES, LINES, PARAMETERS = 12, 250, 10
INNERMOST = {"write_four", "_put_sums"}
"""Compiled loops over columns that hold several rows, or a run of terms, in registers."""


def test_no_folder_is_crowded() -> None:
    folders = Counter(str(PurePosixPath(name).parent) for name in SOURCES)
    assert {folder: count for folder, count in folders.items() if count > FILES} == {}


def test_no_file_is_long() -> None:
    lengths = {name: text.count("\n") for name, text in SOURCES.items()}
    assert {name: length for name, length in lengths.items() if length > LINES} == {}


def test_no_function_takes_many_parameters() -> None:
    many = {
        f"{name}: {function}": count
        for name, text in SOURCES.items()
        for function, count in parameters(text)
        if count > PARAMETERS and not (function in INNERMOST and "/compiled/" in name)
    }
    assert many == {}


def test_parameters_are_counted() -> None:
    source = "class A:\n    def f(self, a, /, b, *c, d, **e): ...\ndef g(): ..."
    assert dict(parameters(source)) == {"f": 3, "g": 0}


def test_the_drawing_shows_every_room() -> None:
    """`python -m benchmarks.rooms_figure` draws it from the contracts, and text stays text."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    drawn = (ROOT / "docs" / "figures" / "rooms.svg").read_text(encoding="utf-8")
    for contract in contracts:
        if contract["id"] in ("floors", "backends", "wings"):
            rooms = (room.strip() for layer in contract["layers"] for room in layer.split("|"))
            for room in rooms:
                assert room.startswith("(") or f">{room}</text>" in drawn, room
