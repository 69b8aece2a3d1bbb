"""The cells of the heat map, and their colours."""

import math

import pytest

from truenorm.verify.grading.report import CaseResult
from truenorm.verify.report.html import Cell, by_case, by_family


def result(
    case: str = "a-1",
    dtype: str = "float32",
    output: str = "y",
    natural: float = 1.0,
    allowed: float = 10.0,
) -> CaseResult:
    family = case.partition("-")[0]
    return CaseResult(case, dtype, family, "hard", output, 2.0, natural, allowed, 0, False, 1.0)


@pytest.mark.parametrize(
    ("natural", "allowed", "level", "text"),
    [
        (0.0, 10.0, "h0", "0"),
        (0.0, 0.0, "h0", "0"),
        (1.0, 10.0, "h0", "0.10"),
        (10.0, 10.0, "h1", "1.0"),
        (10.1, 10.0, "h2", "1.0"),
        (1e3, 1.0, "h3", "1000"),
        (1e6, 1.0, "h4", "1.0e6"),
        (1.1e6, 1.0, "h5", "1.1e6"),
        (math.inf, 1.0, "h6", "∞"),
        (math.nan, 1.0, "h6", "∞"),
        (1e-9, 0.0, "h6", "∞"),
    ],
)
def test_colour(natural: float, allowed: float, level: str, text: str) -> None:
    ((_, (cell,)),) = by_case([result(natural=natural, allowed=allowed)]).rows
    assert cell == Cell(level, text, "a-1: y is off by 2.0 ulp")


def test_a_family_shows_its_worst_case() -> None:
    results = [result("a-1", natural=20.0), result("a-2", natural=math.nan), result("a-3")]
    assert by_family(results).rows == [("a", [Cell("h6", "∞", "a-2: y is off by 2.0 ulp")])]


def test_what_was_not_judged_is_empty() -> None:
    results = [result("a-1"), result("b-1", "float16", "dx"), result("b-2", "float32", "dx")]
    found = by_family(results)
    assert found.groups == [("float32", ["y", "dx"]), ("float16", ["dx"])]
    assert [name for name, _ in found.rows] == ["a", "b"]
    assert [[cell is None for cell in cells] for _, cells in found.rows] == [
        [False, True, True],
        [True, False, False],
    ]
    assert by_case(results).groups == [("", ["y", "dx"])]
    assert by_family([]).rows == by_case([]).rows == []
