"""The roofline: worked out by hand for one card, and the page has what the command makes."""

import json

import pytest

from benchmarks.gpu.__main__ import RESULTS
from benchmarks.gpu.machine_code import count
from benchmarks.pages import filled
from benchmarks.roofline import CARDS, COUNTS, PAGE, limits, table

CODE = """
        /*0000*/                   LDG.E.128 R4, [R2.64] ;
        /*0010*/                   F2F.F64.F32 R8, R4 ;
        /*0020*/              @!P0 DFMA R10, R8, R8, R12 ;
        /*0030*/                   DADD R10, R10, -R8 ;
        /*0040*/                   F2I.S64.F64.TRUNC R6, R10 ;
        /*0050*/                   F2F.BF16.F32 R6, R4 ;
        /*0060*/                   NOP ;
"""


def test_what_counts() -> None:
    assert count(CODE) == {"instructions": 6, "float64": 2, "conversions": 2}


def test_by_hand() -> None:
    """An H100 moves 3.35 TB, does 17e12 multiply-adds and issues 34e12 instructions a second."""
    found = limits(CARDS["H100"], "correct", "forward", "float32")
    copied = 8 / 3.35
    assert found["memory"] == 1
    assert found["float64"] == pytest.approx(12 / 17 / copied)
    assert found["instructions"] == pytest.approx(29 / 34 / copied)


def test_shares_are_traffic() -> None:
    """Of a run of 16 rows: 40 bytes a column, beside 12 an element."""
    found = limits(CARDS["H100"], "fast", "backward", "float32")
    assert found["memory"] == pytest.approx(1 + 40 / 16 / 12)


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page, {"roofline": table()}) == page


def test_counts_are_those_of_the_other_command() -> None:
    """That counts in PTX, with rows in registers, as only forward has them."""
    counted = json.loads(RESULTS.read_text(encoding="utf-8"))["operations"]
    wanted = {"kernel": "forward", "norm": "layer norm"}
    (found,) = [each["counts"] for each in counted if wanted.items() <= each.items()]
    mine = COUNTS["correct", "forward", "float32"]
    assert found["sums and products"] + found["comparisons"] == mine.float64
    assert found["conversions"] == mine.conversions
