"""Numbers and sentences that every kind of page has."""

import dataclasses
import math

import pytest

from truenorm.verify import wording
from truenorm.verify.report import GRADES
from verify.fake_report import failing_report, passing_report


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
    assert wording.number(value) == words


def test_every_grade_has_a_meaning() -> None:
    assert tuple(reversed(wording.MEANINGS)) == GRADES


def test_what_commands_a_terminal_is_spelt_out() -> None:
    assert wording.one_line("a\n\t b\x1b[2J\x9b\u202e\ud800") == r"a b\x1b[2J\x9b\u202e\ud800"
    assert wording.one_line("µ🙂") == "µ🙂"


def test_conclusion() -> None:
    failing, passing = failing_report(), passing_report()
    assert wording.conclusion(passing) == "No finding, and every grade is at least correct."
    assert wording.conclusion(failing) == (
        "5 findings; below stable: y in float16, y dx dgamma in float32."
    )
    one = dataclasses.replace(failing, require="wrong", findings=failing.findings[:1])
    assert wording.conclusion(one) == "1 finding."
    none = dataclasses.replace(failing, require="conditional", findings=())
    assert wording.conclusion(none) == "below conditional: y dx in float32."
