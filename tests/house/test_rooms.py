"""Rooms stay small enough to find one's way: folders, files and lists of parameters."""

from itertools import chain

from benchmarks.rooms import on_disk, parameters
from benchmarks.rooms_figure import FIGURE, HOUSES, floors_of

SOURCES = on_disk()
PARAMETERS = 10
OPTIONS = 19
"""Parameters of a command are its options, which are given by name and read by --help; `verify`
has so many, each of which is a line there and a name in cli/verify.py."""


def test_no_function_takes_many_parameters() -> None:
    many = {
        f"{name}: {function}": count
        for name, text in SOURCES.items()
        for function, count in parameters(text)
        if count > (OPTIONS if function == "command" and "/cli/" in name else PARAMETERS)
    }
    assert many == {}


def test_parameters_are_counted() -> None:
    source = "class A:\n    def f(self, a, /, b, *c, d, **e): ...\ndef g(): ..."
    assert dict(parameters(source)) == {"f": 3, "g": 0}


def test_the_drawing_shows_every_room() -> None:
    """`python -m benchmarks.rooms_figure` draws it from the contracts, and text stays text."""
    drawn = FIGURE.read_text(encoding="utf-8")
    for contract in HOUSES:
        for room in chain.from_iterable(floors_of(contract)):
            assert f">{room}</text>" in drawn, room
