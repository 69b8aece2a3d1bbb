"""The report of `benchmarks.stability`: slopes, tables, figures, and docs/learn/stability.md."""

import re
from collections.abc import Callable
from functools import cache

import pytest

from benchmarks.common import DOCS, RESULTS
from benchmarks.stability import Sweep, demonstrate, from_json, show_at, show_digits, show_row
from shared.tools.screen import printed

COMMITTED = from_json((RESULTS / "stability.json").read_text(encoding="utf-8"))
FLOAT32, _ = COMMITTED.sweeps
ROUNDED = ("two-pass (textbook)", "corrected two-pass", "rounded exact mean")
FLAT = ("pair mean", "textbook in float64 then cast", "truenorm")
GRADED = ("y", "dx", "dgamma")
POWERS = {
    **{("one-pass", output): 2 for output in ("variance", *GRADED)},
    **{("Welford", output): 1 for output in ("variance", *GRADED)},
    **{(name, output): 1 for name in ROUNDED for output in GRADED},
    # An error d of the mean adds d**2 to the variance; the correction takes it out again.
    ("two-pass (textbook)", "variance"): 2,
    **{(name, output): 0 for name in FLAT for output in ("variance", *GRADED)},
    ("corrected two-pass", "variance"): 0,
    ("rounded exact mean", "variance"): 0,
}
LATE = ("two-pass (textbook)", "variance")
"""It grows from 1/sqrt(u) on: float32 has too few points between there and 1/u."""


@cache
def swept(dtype: str) -> Sweep:
    """Return the sweep of a small D, which costs half a second and two."""
    return demonstrate([dtype], size=33, seed=1).sweeps[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
class TestSweep:
    def test_slopes(self, dtype: str) -> None:
        """1, 2 or 0, for every algorithm and output.

        The rounding error of a mean is anything up to half an ulp, so errors scatter by a factor
        of two or three, over the decades of a type: 0.05 in the slope, or 0.1. Four times that.
        What is flat is far below 16 u: sums of 33 terms in pairs, a root, some products.
        """
        sweep = swept(dtype)
        near = {"float32": 0.4, "float64": 0.2}[dtype]
        for curve in sweep.curves:
            name = curve.algorithm, curve.output
            if POWERS[name] == 0:
                assert max(curve.relative) <= 16 * sweep.u, name
            if dtype == "float64" or name != LATE:
                assert abs(curve.slope - POWERS[name]) <= near, name

    def test_rounded_mean_costs_u_kappa(self, dtype: str) -> None:
        """It is off by at most u*mean, and xhat by u*kappa; the natural scale is at least 1."""
        sweep = swept(dtype)
        curve = sweep.of("y")["rounded exact mean"]
        for offset, error in zip(sweep.offsets, curve.relative, strict=True):
            assert error <= 2 * sweep.u * (offset + 4)

    def test_truenorm_is_correct(self, dtype: str) -> None:
        ours = [curve for curve in swept(dtype).curves if curve.algorithm == "truenorm"]
        assert {curve.output for curve in ours} == set(GRADED)
        assert max(max(curve.ulp) for curve in ours) <= 0.5


PAGE = (DOCS / "learn" / "stability.md").read_text(encoding="utf-8")


def on_the_page(show: Callable[..., None], *arguments: object) -> str:
    """Return what the benchmark prints, in the width of the page."""
    lines = printed(show, *arguments, width=88).strip("\n").splitlines()
    return "\n".join(line.rstrip() for line in lines)


def test_every_block_is_output_of_the_benchmark() -> None:
    """Blocks without a prompt are tables or named rows, to the last character."""
    blocks = re.findall(r"```text\n(.*?)\n```", PAGE, flags=re.DOTALL)
    tables = {on_the_page(show_digits, FLOAT32, "y"), on_the_page(show_at, FLOAT32, 1e4)}
    rows = {on_the_page(show_row, row) for row in COMMITTED.named}
    pieces = [piece for block in blocks for piece in block.split("\n\n")]
    assert len(pieces) >= 10
    assert tables < set(pieces) <= tables | rows
