"""What is printed: ready to be pasted, and on a terminal."""

from tools.screen import printed
from truenorm.doctor import Diagnosis, Line, Section, doctor_conclusion, show_diagnosis, to_text
from truenorm.tools import strict_json

WELL = Section("Versions", (Line("numpy", "2.0"),))
ILL = Section("Self-test", (Line("native, float32", "WRONG: y\n\x1b[2J", "mend\nit"),), 61.2)


def diagnosis(*sections: Section) -> Diagnosis:
    return Diagnosis("2026-01-02", True, sections)


def test_text() -> None:
    assert to_text(diagnosis(WELL, ILL)).splitlines() == [
        "```text",
        "truenorm doctor --full, 2026-01-02",
        "",
        "Versions",
        "  numpy               2.0",
        "",
        "Self-test (1 min 1 s)",
        r"  native, float32     WRONG: y \x1b[2J",
        "                      -> mend it",
        "",
        "PROBLEM: 1 thing is wrong (native, float32); the lines with -> say what to do.",
        "```",
    ]


def test_conclusion() -> None:
    assert doctor_conclusion(diagnosis(WELL)) == "HEALTHY: nothing is wrong."
    assert doctor_conclusion(diagnosis(ILL, ILL)).startswith("PROBLEM: 2 things are wrong")


def test_json() -> None:
    ill = {"name": "native, float32", "value": "WRONG: y\n\x1b[2J", "remedy": "mend\nit"}
    well = {"name": "numpy", "value": "2.0", "remedy": ""}
    assert strict_json.loads(strict_json.dumps(diagnosis(WELL, ILL).as_dict())) == {
        "healthy": False,
        "date": "2026-01-02",
        "full": True,
        "gpu": False,
        "problems": [ill],
        "sections": {
            "Versions": {"seconds": None, "lines": [well]},
            "Self-test": {"seconds": 61.2, "lines": [ill]},
        },
    }


def test_terminal() -> None:
    """The same lines, and colours where there are any."""
    text = printed(show_diagnosis, diagnosis(WELL, ILL))
    assert text.splitlines()[:-1] == to_text(diagnosis(WELL, ILL)).splitlines()[2:-1]
    assert "\x1b[1;31mPROBLEM: " in printed(show_diagnosis, diagnosis(ILL), colours=True).replace(
        "\n", ""
    )
