"""What people see: tables that fit, rows that group what agrees, colours on a terminal alone."""

import io
import math

import pytest
from rich.console import Console

from demo.reports import committed
from truenorm.demo.page import show, show_at, show_digits, show_row
from truenorm.demo.report import Curve, NamedRow, Sweep

NAMES = ["one-pass", "Welford", "two-pass (textbook)", "corrected two-pass", "pair mean"]


def console(*, terminal: bool = False, width: int = 80) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=terminal,
        color_system="truecolor" if terminal else None,
        width=width,
        highlight=False,
    )


def text(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


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
    screen = console()
    show(committed(), screen, output)
    assert max(map(len, text(screen).splitlines())) <= 80
    assert f"float32, {output}: correct digits" in text(screen)
    assert f"float64, {output}: correct digits" in text(screen)
    for named in committed().named:
        assert f"{named.dtype}  {named.name}: {named.output} of {named.row}" in text(screen)


def test_no_colours_in_a_pipe() -> None:
    screen = console()
    show(committed(), screen)
    assert "\x1b" not in text(screen)
    screen = console(terminal=True)
    show(committed(), screen)
    assert "\x1b[" in text(screen)


def test_digits_that_are_left() -> None:
    errors = [1e-6, 0.0, 30.0, math.nan, math.inf]
    sweep = Sweep(
        "float32", 1e-7, [1e0, 1e1, 1e2, 1e3, 1e4], [Curve("one-pass", "y", errors, errors, 2.04)]
    )
    screen = console()
    show_digits(sweep, "y", screen)
    (line,) = (each for each in text(screen).splitlines() if each.startswith("one-pass"))
    assert line.split() == ["one-pass", "6.0", "7.0", "0.0", "nan", "inf", "2.0"]


def test_half_decades_have_no_column() -> None:
    sweep = committed().sweeps[1]
    screen = console()
    show_digits(sweep, "y", screen)
    heading = next(each for each in text(screen).splitlines() if each.startswith("mean/std"))
    columns = heading.split()[1:-1]
    assert columns == ["1e0", "1e2", "1e4", "1e6", "1e8", "1e10", "1e12", "1e14"]
    curve = sweep.of("y")["Welford"]
    line = next(each for each in text(screen).splitlines() if each.startswith("Welford"))
    left = -math.log10(curve.relative[sweep.offsets.index(1e8)])
    assert line.split()[5] == f"{left:.1f}"


def test_all_outputs_at_one_offset() -> None:
    curves = [
        Curve("truenorm", output, [1e-7 * k], [0.5], 0.0)
        for k, output in enumerate(("y", "dx", "dgamma"), start=1)
    ]
    screen = console()
    show_at(Sweep("float32", 1e-7, [1e4], curves), 1e4, screen)
    line = next(each for each in text(screen).splitlines() if each.startswith("truenorm"))
    assert line.split() == ["truenorm", "-", "1.0", "2.0", "3.0", "0.50"]


def test_algorithms_that_agree_are_together() -> None:
    screen = console()
    returned = {"one-pass": [math.nan, -0.0], "Welford": [0.50001, 1.0], "truenorm": [0.5, 1.0]}
    show_row(row(returned), screen)
    lines = [line.split() for line in text(screen).splitlines() if line]
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
    screen = console(width=120)
    show_row(row({name: [7.0, 7.0] for name in names}), screen)
    assert f"7    7  {said}\n" in text(screen)


def test_lines_are_broken_below_where_they_begin() -> None:
    screen = console(width=50)
    show_row(row({name: [0.5, 1.0] for name in NAMES[:4]}), screen)
    lines = text(screen).splitlines()
    place = lines[2].index("one-pass")
    assert lines[3][:place].isspace()
    assert not lines[3][place].isspace()
    assert max(map(len, lines)) <= 50
