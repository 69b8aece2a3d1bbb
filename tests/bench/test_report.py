"""What follows from a time."""

import re
from pathlib import Path

import pytest

from bench.made_up import report
from truenorm.bench import ARRAYS, FLOPS
from truenorm.cost import rms_norm_cost
from truenorm.tools import strict_json

PAGE = Path(__file__).parents[2] / "docs" / "time-and-memory.md"


def test_rates() -> None:
    """2 x 250 elements of 4 bytes."""
    figures = report().of((2, 250))
    forward = figures["forward"]["truenorm correct"]
    assert forward.seconds == 2e-3
    assert forward.bytes_per_second == pytest.approx(2 * 2000 / 2e-3)
    assert forward.flops_per_second == pytest.approx(7 * 500 / 2e-3)
    assert forward.times_floor == pytest.approx(2)
    backward = figures["backward"]["textbook"]
    assert backward.bytes_per_second == pytest.approx(3 * 2000 / 4e-3)
    assert backward.flops_per_second == pytest.approx(11 * 500 / 4e-3)
    assert backward.times_floor == pytest.approx(4)
    assert figures["backward"]["triad"].flops_per_second == 0
    assert figures["backward"]["triad"].bytes_per_second == pytest.approx(3 * 2000 / 1e-3)


def test_json_has_everything_also_first_calls_beyond_the_later_ones() -> None:
    """1.5 s each, at two shapes; the textbook's are not ours to explain."""
    made = report(((2, 250), (4, 4)))
    found = strict_json.loads(strict_json.dumps(made.as_dict()))
    first = found["first_calls"]
    assert list(first) == ["correct forward", "fast forward", "correct backward", "fast backward"]
    assert first["correct forward"] == pytest.approx(2 * (1.5 - 0.002))
    assert first["fast backward"] == pytest.approx(2 * (1.5 - 0.003))
    assert (found["flops_per_element"], found["arrays_moved"]) == (FLOPS["layer_norm"], ARRAYS)
    assert found["figures"][0]["contestant"] == "copy"


def test_flops_are_those_that_the_page_counts() -> None:
    """The page itself is tested against what NumPy is asked to do."""
    text = PAGE.read_text(encoding="utf-8")
    for direction, pattern in (("forward", "Forward"), ("backward", "Backward")):
        section = text.split(f"\n## {pattern}\n")[1].split("\n## ")[0]
        total = re.search(r"\*\*total\*\* \| +\| \*\*(\d+) N\*\*", section)
        assert total
        assert FLOPS["layer_norm"][direction] == int(total[1])
        counted = rms_norm_cost((2**10, 2**10), form="textbook", keep="xhat").passes[direction]
        assert FLOPS["rms_norm"][direction] == round(counted.flops / 2**20)
        fused = re.search(rf"\| {direction}, fused \| \d+ N \| (\d+) N \|", text)
        assert fused
        assert ARRAYS[direction] == int(fused[1])
