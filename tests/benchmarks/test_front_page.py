"""The table of the README is what the commands measured."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def front_page() -> Any:
    """Return the command, which is no part of the package."""
    sys.path.insert(0, str(ROOT))
    try:
        return import_module("benchmarks.front_page")
    finally:
        sys.path.remove(str(ROOT))


def test_the_readme_holds_what_the_files_say(front_page: Any) -> None:
    page = front_page.PAGE.read_text(encoding="utf-8")
    made = front_page.front(front_page.results("peers"), front_page.results("scoreboard"))
    assert front_page.filled(page, {"front": made}) == page


def test_a_time_is_divided_by_that_of_pytorch(front_page: Any) -> None:
    shape = front_page.SHAPE
    figures = [
        {"shape": shape, "direction": direction, "contestant": name, "p50": 2.0 if ours else 4.0}
        for direction in ("forward", "backward")
        for name in front_page.CONTESTANTS.values()
        for ours in [name.startswith("truenorm fast")]
        if name != "thinc"
    ]
    machine = {"date": "today", "cpu": "one", "cores": "2"}
    subjects = {
        key: {"grades": [{"dtype": "float32", "output": "y", "grade": "stable"}]}
        for key in front_page.CONTESTANTS
    }
    table = front_page.front(
        {"figures": figures, "machine": machine, "quiet": True},
        {"subjects": subjects, "machine": machine},
    )
    assert "| truenorm fast | stable | none | none | 0.50 | 0.50 |" in table
    assert "| thinc | stable | none | none | none | none |" in table
    assert "not quiet" not in table
