"""What people are shown: numbers, times, and nothing that commands a terminal."""

import math
from pathlib import Path

import pytest

from truenorm.tools import text


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


def test_what_commands_a_terminal_is_spelt_out() -> None:
    assert text.one_line("a\n\t b\x1b[2J\x9b\u202e\ud800") == r"a b\x1b[2J\x9b\u202e\ud800"
    assert text.one_line("µ🙂") == "µ🙂"
    assert text.printable("a  b\x07") == r"a  b\x07"


def test_the_home_folder_is_nobodys_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/alice"))
    assert text.without_home("/home/alice/x /home/alicey") == "~/x /home/alicey"
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert text.without_home("/x") == "/x"


def test_nobodys_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", none)
    assert text.without_home("/x") == "/x"
