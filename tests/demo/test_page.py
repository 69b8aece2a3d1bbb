"""What people see: tables that fit, rows that group what agrees, colours on a terminal alone."""

import math
from functools import partial

import pytest

from demo.reports import committed
from tools.screen import printed
from truenorm.demo.page import show, show_at, show_digits, show_row
from truenorm.demo.report import Curve, NamedRow, Sweep

NAMES = ["one-pass", "Welford", "two-pass (textbook)", "corrected two-pass", "pair mean"]


def line_of(start: str, text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def row(returned: dict[str, list[float]]) -> NamedRow:
    return NamedRow(
        name="name",
        dtype="float32",
        row="[1, 2]",
        why="the reason",
        remedy="help",
        exact=[0.5, 1.0],
        returned=returned,
    )


@pytest.mark.parametrize("output", ["variance", "y", "dx", "dgamma"])
def test_a_report_fits_a_terminal(output: str) -> None:
    text = printed(partial(show, output=output), committed())
    assert max(map(len, text.splitlines())) <= 80
    assert f"float32, {output}: correct digits" in text
    assert f"float64, {output}: correct digits" in text
    for named in committed().named:
        assert f"{named.dtype}  {named.name}: {named.output} of {named.row}" in text


def test_no_colours_in_a_pipe() -> None:
    assert "\x1b" not in printed(show, committed())
    assert "\x1b[" in printed(show, committed(), colours=True)


def test_digits_that_are_left() -> None:
    errors = [1e-6, 0.0, 30.0, math.nan, math.inf]
    sweep = Sweep(
        "float32", 1e-7, [1e0, 1e1, 1e2, 1e3, 1e4], [Curve("one-pass", "y", errors, errors, 2.04)]
    )
    line = line_of("one-pass", printed(show_digits, sweep, "y"))
    assert line.split() == ["one-pass", "6.0", "7.0", "0.0", "nan", "inf", "2.0"]


def test_half_decades_have_no_column() -> None:
    sweep = committed().sweeps[1]
    text = printed(show_digits, sweep, "y")
    columns = line_of("mean/std", text).split()[1:-1]
    assert columns == ["1e0", "1e2", "1e4", "1e6", "1e8", "1e10", "1e12", "1e14"]
    curve = sweep.of("y")["Welford"]
    left = -math.log10(curve.relative[sweep.offsets.index(1e8)])
    assert line_of("Welford", text).split()[5] == f"{left:.1f}"


def test_all_outputs_at_one_offset() -> None:
    curves = [
        Curve("truenorm", output, [1e-7 * k], [0.5], 0.0)
        for k, output in enumerate(("y", "dx", "dgamma"), start=1)
    ]
    line = line_of("truenorm", printed(show_at, Sweep("float32", 1e-7, [1e4], curves), 1e4))
    assert line.split() == ["truenorm", "-", "1.0", "2.0", "3.0", "0.50"]


def test_algorithms_that_agree_are_together() -> None:
    returned = {"one-pass": [math.nan, -0.0], "Welford": [0.50001, 1.0], "truenorm": [0.5, 1.0]}
    lines = [line.split() for line in printed(show_row, row(returned)).splitlines() if line]
    assert lines[1] == ["exact", "0.5", "1", "Welford,", "truenorm"]
    assert lines[2] == ["nan", "0", "one-pass"]
    assert lines[3] == ["the", "reason"]
    assert lines[4] == ["remedy:", "help"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (NAMES[:4], "one-pass, Welford, two-pass (textbook), corrected two-pass"),
        (NAMES, "all others"),
        ([*NAMES, "truenorm"], "truenorm and all others"),
    ],
)
def test_the_larger_part_is_not_listed(names: list[str], said: str) -> None:
    text = printed(show_row, row({name: [7.0, 7.0] for name in names}), width=120)
    assert f"7    7  {said}\n" in text


def test_lines_are_broken_below_where_they_begin() -> None:
    lines = printed(show_row, row({name: [0.5, 1.0] for name in NAMES[:4]}), width=50).splitlines()
    place = lines[2].index("one-pass")
    assert lines[3][:place].isspace()
    assert not lines[3][place].isspace()
    assert max(map(len, lines)) <= 50
