"""The tables of registers: how they are counted, and that the page is what was written down."""

import json

import pytest

from benchmarks.gpu.__main__ import RESULTS
from benchmarks.gpu.compilers import Use
from benchmarks.gpu.occupancy import MULTIPROCESSORS, blocks_at_once
from benchmarks.gpu.page import PAGE, page
from benchmarks.gpu.ptx import count

PTX = """
    ld.global.nc.f32 \t%f1, [%rd1];
    cvt.f64.f32 \t%fd1, %f1;
    fma.rn.f64 \t%fd2, %fd1, %fd1, %fd3;
    @%p1 add.f64 \t%fd4, %fd2, %fd1;
    neg.f64 \t%fd5, %fd4;
    mov.f64 \t%fd6, %fd5;
    st.global.f64 \t[%rd2], %fd6;
    setp.gt.f64 \t%p2, %fd4, 0d0000000000000000;
    cvt.rn.f32.f64 \t%f2, %fd4;
    add.f32 \t%f3, %f2, %f1;
"""


def test_what_counts_as_an_operation() -> None:
    assert count(PTX) == {"sums and products": 2, "comparisons": 1, "conversions": 2}


@pytest.mark.parametrize(
    ("use", "threads", "target", "blocks"),
    [
        (Use(32, 0, 0), 128, "sm_80", 16),  # 2048 threads, and as many registers
        (Use(33, 0, 0), 128, "sm_80", 12),  # 1280 registers a warp, 51 warps
        (Use(64, 0, 0), 1024, "sm_120", 1),  # 1536 threads
        (Use(16, 0, 0), 32, "sm_120", 24),
        (Use(128, 0, 0), 512, "sm_90", 1),
        (Use(16, 0, 40 * 1024), 64, "sm_80", 4),  # 164 KB
    ],
)
def test_blocks_at_once(use: Use, threads: int, target: str, blocks: int) -> None:
    """By the formula, with pencil and paper."""
    assert blocks_at_once(use, threads, MULTIPROCESSORS[target]) == blocks


def test_the_page_is_what_was_written_down() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(json.loads(RESULTS.read_text("utf-8")))
