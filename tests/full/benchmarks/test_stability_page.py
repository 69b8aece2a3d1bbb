"""The report of `benchmarks.stability`: slopes, tables, figures, and docs/learn/stability.md."""

import math
import re
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest

from benchmarks.common import DOCS, RESULTS
from benchmarks.picture import GAP
from benchmarks.stability import (
    ALGORITHMS,
    LINES,
    OUTPUTS,
    SHORT,
    TOP,
    Curve,
    Sweep,
    demonstrate,
    draw,
    from_json,
    offsets,
    show_at,
    show_demonstration,
    show_digits,
    show_row,
    slope,
)
from shared.tools.screen import printed
from truenorm.tools import strict_json
from truenorm.tools.text import number

COMMITTED = from_json((RESULTS / "stability.json").read_text(encoding="utf-8"))
FLOAT32, FLOAT64 = COMMITTED.sweeps
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

    def test_one_pass_loses_all_digits(self, dtype: str) -> None:
        sweep = swept(dtype)
        errors = sweep.of("y")["one-pass"].relative
        first = next(k for k, each in enumerate(sweep.offsets) if each > 10 / math.sqrt(sweep.u))
        assert not any(error < 0.1 for error in errors[first:])


def test_offsets_are_half_decades_to_the_limit_of_the_type() -> None:
    for dtype, u in (("float32", 2.0**-24), ("float64", 2.0**-53)):
        powers = np.log10(offsets(dtype))
        np.testing.assert_allclose(np.diff(powers), 0.5, atol=2e-3)  # of three digits
        assert powers[0] == 0
        assert 0 <= -math.log10(u) - powers[-1] < 0.5


def test_slope_ignores_noise_and_nan() -> None:
    kappas = [10.0**k for k in range(8)]
    errors = [1e-8, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, math.nan, 7.0]
    assert slope(kappas, errors, 2.0**-24) == 1.0
    assert slope(kappas, [1e-8] * 8, 2.0**-24) == 0.0
    assert slope(kappas, [math.nan] * 8, 2.0**-24) == 0.0


def test_seed() -> None:
    """Equal seeds give equal reports."""
    first, again, other = (demonstrate(["float32"], size=5, seed=k).sweeps for k in (0, 0, 1))
    assert repr(first) == repr(again)
    assert repr(first) != repr(other)


def test_progress() -> None:
    steps: list[tuple[int, int, str]] = []
    demonstrate(["float32"], size=3, progress=lambda *step: steps.append(step))
    assert [done for done, _, _ in steps] == list(range(16))
    assert {total for _, total, _ in steps} == {15}
    assert steps[0][2] == "float32, offset 1"


def test_constant_rows() -> None:
    """At the limit of the type two elements are often the same number: the variance is 0."""
    sweep = demonstrate(["float32"], size=2).sweeps[0]
    curve = sweep.of("variance")["rounded exact mean"]
    assert max(curve.relative) <= sweep.u


def test_named_rows_and_json_round_trip() -> None:
    both = demonstrate(size=2)
    assert {row.dtype for row in both.named} == {"float16", "float32", "float64"}
    assert {row.dtype for row in demonstrate(["float64"], size=2).named} == {"float64"}
    assert repr(from_json(strict_json.dumps(both))) == repr(both)


@pytest.mark.parametrize("output", ["variance", "y", "dx", "dgamma"])
@pytest.mark.parametrize("width", [80, 60])
def test_a_report_fits_a_terminal(output: str, width: int) -> None:
    text = printed(partial(show_demonstration, output=output), COMMITTED, width=width)
    titles = [line for line in text.splitlines() if "correct digits" in line]
    assert [title.partition(":")[0] for title in titles] == [
        f"float32, {output}",
        f"float64, {output}",
    ]
    assert width < 80 or max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    for named in COMMITTED.named:
        assert f"{named.dtype} {named.name}: {named.output} of {named.row}" in words
        assert f"{named.why} remedy: {named.remedy}" in words
    assert "\x1b" not in text


def test_correct_digits() -> None:
    errors = [1e-6, 0.0, 30.0, math.nan, math.inf]
    curves = [Curve("one-pass", "y", errors, errors, 2.04)]
    sweep = Sweep("float32", 1e-7, [1e0, 1e1, 1e2, 1e3, 1e4], curves)
    line = printed(show_digits, sweep, "y").splitlines()[3]
    assert line.split() == ["one-pass", "6.0", "7.0", "0.0", "nan", "inf", "2.0"]
    assert "\x1b[32m6.0\x1b[0m" in printed(show_digits, sweep, "y", colours=True)


def test_nan_is_drawn_at_the_top() -> None:
    curve = Curve("Welford", "y", [0.1, math.inf, math.nan], [1, 1, 1], 1.0)
    (axes,) = draw([Sweep("float32", 2.0**-24, [1.0, 10.0, 100.0], [curve])], ["y"]).axes
    assert np.asarray(axes.get_lines()[-1].get_ydata()).tolist() == [0.1, TOP, TOP]
    assert "Welford: nan" in [each.get_text() for each in axes.texts]


def test_lines_differ_without_their_colours() -> None:
    assert list(LINES) == list(ALGORITHMS)
    looks = {(each["marker"], each.get("ms"), each.get("mfc")) for each in LINES.values()}
    assert len(looks) == len({each["color"] for each in LINES.values()}) == len(LINES)


SOME = ("one-pass", "pair mean", "truenorm")


@pytest.mark.parametrize("algorithms", [ALGORITHMS, SOME])
@pytest.mark.parametrize("sweeps", [[FLOAT32], [FLOAT64], [FLOAT32, FLOAT64]])
def test_panels(sweeps: list[Sweep], algorithms: tuple[str, ...]) -> None:
    """Each panel has the errors of its output, and one name for each line, none above another."""
    figure = draw(sweeps, algorithms=algorithms)
    panels = [(sweep, output) for output in OUTPUTS for sweep in sweeps]
    for axes, (sweep, output) in zip(figure.axes, panels, strict=True):
        assert axes.get_title(loc="left") == f"error of {output}, {sweep.dtype}"
        drawn = {
            str(line.get_label()): np.asarray(line.get_ydata()).tolist()
            for line in axes.get_lines()
            if not str(line.get_label()).startswith("_")
        }
        assert drawn == {
            name: [each if each < TOP else TOP for each in curve.relative]
            for name, curve in sweep.of(output).items()
            if name in algorithms
        }
        names = {
            each.get_text().partition(":")[0]: each.get_position()[1]
            for each in axes.texts
            if each.get_position()[0] > 1 and "κ" not in each.get_text()
        }
        assert set(names) == {SHORT.get(name, name) for name in drawn}
        assert min(np.diff(sorted(names.values())), default=GAP) >= GAP - 1e-9


@pytest.mark.parametrize(
    ("name", "algorithms"),
    [
        ("error-against-offset", ["one-pass", "two-pass (textbook)", *FLAT]),
        ("variance-and-y", ["one-pass", *ROUNDED[:2], *FLAT]),
    ],
)
def test_committed_figures(name: str, algorithms: list[str]) -> None:
    """Text stays text, and the background is white for dark pages."""
    svg = (DOCS / "figures" / f"{name}.svg").read_text(encoding="utf-8")
    for algorithm in algorithms:
        assert re.search(rf">{re.escape(SHORT.get(algorithm, algorithm))}(: \w+)?</text>", svg)
    assert "fill: #ffffff" in svg


PAGE = (DOCS / "learn" / "stability.md").read_text(encoding="utf-8")


def on_the_page(show: Callable[..., None], *arguments: object) -> str:
    """Return what the benchmark prints, in the width of the page."""
    lines = printed(show, *arguments, width=88).strip("\n").splitlines()
    return "\n".join(line.rstrip() for line in lines)


def test_tables() -> None:
    assert f"```text\n{on_the_page(show_digits, FLOAT32, 'y')}\n```" in PAGE
    assert f"```text\n{on_the_page(show_at, FLOAT32, 1e4)}\n```" in PAGE


def test_every_block_is_output_of_the_benchmark() -> None:
    """Blocks without a prompt are tables or named rows, to the last character."""
    blocks = re.findall(r"```text\n(.*?)\n```", PAGE, flags=re.DOTALL)
    outputs = {on_the_page(show_digits, FLOAT32, "y"), on_the_page(show_at, FLOAT32, 1e4)}
    outputs |= {on_the_page(show_row, row) for row in COMMITTED.named}
    pieces = [piece for block in blocks for piece in block.split("\n\n")]
    assert len(pieces) >= 10
    assert set(pieces) <= outputs


def error(algorithm: str, output: str, offset: float) -> float:
    return FLOAT32.of(output)[algorithm].relative[FLOAT32.offsets.index(offset)]


def test_numbers_in_the_text() -> None:
    def in_u(algorithm: str, output: str) -> str:
        return number(error(algorithm, output, 1e4) / FLOAT32.u)

    two, corrected = "two-pass (textbook)", "corrected two-pass"
    assert (
        f"a variance that is right to {in_u(corrected, 'variance')} u, and the plain form to "
        f"{in_u(two, 'variance')} u.\nBoth have a y that is wrong by {in_u(two, 'y')} u."
    ) in PAGE
    assert in_u(two, "y") == in_u(corrected, "y")
    rounded = number(error("rounded exact mean", "dgamma", 1e6))
    pair = number(error("pair mean", "dgamma", 1e6))
    assert f"an error of {rounded} of its natural scale; a pair leaves {pair}." in PAGE


def test_machine_of_the_page() -> None:
    versions = "NumPy {numpy}, Python {python}, {machine}, {date}"
    assert versions.format(**COMMITTED.machine) in PAGE


def test_figures_of_the_page() -> None:
    shown = re.findall(r"\]\(../(figures/\S+\.svg)\)", PAGE)
    assert shown == [
        "figures/error-against-offset.svg",
        "figures/variance-and-y.svg",
    ]
    assert all((DOCS / file).is_file() for file in shown)
