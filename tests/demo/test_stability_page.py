"""docs/stability.md shows what the committed report says."""

import re
from collections.abc import Callable

import pytest

from demo.reports import ROOT, committed
from tools.screen import printed
from truenorm.demo import page
from truenorm.demo.demonstration import NamedRow
from truenorm.tools.text import number

PAGE = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
FLOAT32, FLOAT64 = committed().sweeps


def on_the_page(show: Callable[..., None], *arguments: object) -> str:
    """Return what the command prints, in the width of the page."""
    lines = printed(show, *arguments, width=88).strip("\n").splitlines()
    return "\n".join(line.rstrip() for line in lines)


def test_tables() -> None:
    assert f"```text\n{on_the_page(page.show_digits, FLOAT32, 'y')}\n```" in PAGE
    assert f"```text\n{on_the_page(page.show_at, FLOAT32, 1e4)}\n```" in PAGE
    assert on_the_page(page.show_digits, FLOAT64, "y") in PAGE


@pytest.mark.parametrize("row", committed().named, ids=lambda row: f"{row.dtype}-{row.name}")
def test_named_rows(row: NamedRow) -> None:
    assert on_the_page(page.show_row, row) in PAGE


def error(algorithm: str, output: str, offset: float) -> float:
    return FLOAT32.of(output)[algorithm].relative[FLOAT32.offsets.index(offset)]


def test_numbers_in_the_text() -> None:
    def in_u(algorithm: str, output: str) -> str:
        return number(error(algorithm, output, 1e4) / FLOAT32.u)

    two, corrected = "two-pass (textbook)", "corrected two-pass"
    ulp = number(FLOAT32.of("y")[two].ulp[FLOAT32.offsets.index(1e4)])
    assert (
        f"corrected two-pass is right to {in_u(corrected, 'variance')} u and the plain one to "
        f"{in_u(two, 'variance')} u; both have a y that is wrong by {in_u(two, 'y')} u, "
        f"and by {ulp} ulp"
    ) in PAGE
    assert in_u(two, "y") == in_u(corrected, "y")
    rounded = number(error("rounded exact mean", "dgamma", 1e6))
    pair = number(error("pair mean", "dgamma", 1e6))
    assert f"an error of {rounded} of its natural scale; a pair leaves {pair}." in PAGE


def test_where_the_numbers_come_from() -> None:
    machine = committed().machine
    said = (
        f"truenorm {machine['truenorm']}, NumPy {machine['numpy']}, Python {machine['python']}, "
        f"{machine['machine']}, {machine['date']}"
    )
    assert said in PAGE


def test_figures_are_those_that_are_drawn() -> None:
    shown = re.findall(r"\]\((figures/\S+\.svg)\)", PAGE)
    assert shown == [
        "figures/error-against-offset.svg",
        "figures/stability-float32.svg",
        "figures/stability-float64.svg",
    ]
    assert all((ROOT / "docs" / file).is_file() for file in shown)
