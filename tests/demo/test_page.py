"""What people see: tables that fit, and colours on a terminal alone.

test_stability_page.py has the tables and the rows themselves.
"""

import math
from functools import partial

import pytest

from demo.reports import committed
from tools.screen import printed
from truenorm.demo.demonstration import Curve, Sweep
from truenorm.demo.page import show_demonstration, show_digits


@pytest.mark.parametrize("output", ["variance", "y", "dx", "dgamma"])
@pytest.mark.parametrize("width", [80, 60])
def test_a_report_fits_a_terminal(output: str, width: int) -> None:
    text = printed(partial(show_demonstration, output=output), committed(), width=width)
    titles = [line for line in text.splitlines() if "correct digits" in line]
    assert [title.partition(":")[0] for title in titles] == [
        f"float32, {output}",
        f"float64, {output}",
    ]
    assert width < 80 or max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    for named in committed().named:
        assert f"{named.dtype} {named.name}: {named.output} of {named.row}" in words
        assert f"{named.why} remedy: {named.remedy}" in words
    assert "\x1b" not in text


def test_digits_that_are_left() -> None:
    errors = [1e-6, 0.0, 30.0, math.nan, math.inf]
    curves = [Curve("one-pass", "y", errors, errors, 2.04)]
    sweep = Sweep("float32", 1e-7, [1e0, 1e1, 1e2, 1e3, 1e4], curves)
    line = printed(show_digits, sweep, "y").splitlines()[3]
    assert line.split() == ["one-pass", "6.0", "7.0", "0.0", "nan", "inf", "2.0"]
    assert "\x1b[32m6.0\x1b[0m" in printed(show_digits, sweep, "y", colours=True)
