"""The table: everything in 80 columns, and nothing cut off."""

import pytest

from bench.made_up import report
from tools.screen import printed
from truenorm.bench import rate, show_timings


def shown(dtype: str = "float32") -> str:
    return printed(show_timings, report(((2, 250), (1, 1)), dtype))


def test_it_fits() -> None:
    text = shown()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "\x1b" not in text  # no colours in a pipe


def test_a_line_of_each_contestant() -> None:
    lines = shown().splitlines()
    line = next(line for line in lines if line.startswith("truenorm correct"))
    # 2000 bytes and 500 elements in 2 ms; the floor takes 1 ms.
    assert line.split() == [
        "truenorm", "correct", "2.00", "<0.01", "<0.01", "2.00", "2.00", "<0.01", "<0.01", "2.00",
    ]  # fmt: skip
    floor = next(line for line in lines if line.startswith("copy | triad"))
    assert floor.split()[3:] == ["1.00", "<0.01", "-", "1.00", "1.00", "<0.01", "-", "1.00"]
    assert sum(line.startswith("textbook in float64") for line in lines) == 2
    assert "textbook in float64" not in shown("float64")


def test_it_says_how_to_read_it() -> None:
    text = " ".join(shown().split())
    for words in (
        "backend 'native' on 2 threads",
        "medians of 7 rounds",
        "date 2026-01-02, cpu abacus, cores 4",
        "Timings on a busy machine wander",
        "7 forward and 11 backward for each element",
        "correct forward 3.0 s",
        "(out=)",
        "A note.",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("value", "text"), [(0.00999, "<0.01"), (0.01, "0.01"), (9.996, "10.0"), (99.96, "100")]
)
def test_rate(value: float, text: str) -> None:
    assert rate(value) == text
