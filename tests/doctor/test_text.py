"""What is printed: ready to be pasted, and on a terminal."""

import io

import pytest
from rich.console import Console

from truenorm.doctor.report import Diagnosis, Line, Section
from truenorm.doctor.terminal import show
from truenorm.doctor.text import conclusion, to_text

WELL = Section("Versions", (Line("numpy", "2.0"),))
ILL = Section("Self-test", (Line("fused, float32", "WRONG: y\n\x1b[2J", "mend\nit"),), 61.2)


def diagnosis(*sections: Section) -> Diagnosis:
    return Diagnosis("2026-01-02", True, sections)


def test_healthy_and_not() -> None:
    assert diagnosis(WELL).healthy
    assert not diagnosis(WELL, ILL).healthy
    assert diagnosis(WELL, ILL).problems == list(ILL.lines)


def test_text() -> None:
    assert to_text(diagnosis(WELL, ILL)).splitlines() == [
        "```text",
        "truenorm doctor --full, 2026-01-02",
        "",
        "Versions",
        "  numpy               2.0",
        "",
        "Self-test (1 min 1 s)",
        r"  fused, float32      WRONG: y \x1b[2J",
        "                      -> mend it",
        "",
        "PROBLEM: 1 thing is wrong (fused, float32); the lines with -> say what to do.",
        "```",
    ]


def test_conclusion() -> None:
    assert conclusion(diagnosis(WELL)) == "HEALTHY: nothing is wrong."
    assert conclusion(diagnosis(ILL, ILL)).startswith("PROBLEM: 2 things are wrong")


def test_dictionary() -> None:
    found = diagnosis(WELL, ILL).as_dict()
    assert found["healthy"] is False
    assert found["sections"]["Versions"]["lines"] == [
        {"name": "numpy", "value": "2.0", "remedy": ""}
    ]
    assert [line["remedy"] for line in found["problems"]] == ["mend\nit"]


@pytest.mark.parametrize(("section", "word"), [(WELL, "HEALTHY:"), (ILL, "PROBLEM:")])
def test_terminal(section: Section, word: str) -> None:
    file = io.StringIO()
    show(diagnosis(section), Console(file=file, width=80, highlight=False))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(word) for line in lines)
    assert "\x1b" not in file.getvalue()
    if section is ILL:
        assert any("-> mend it" in line for line in lines)
