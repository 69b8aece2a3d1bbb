"""How the error of each algorithm grows with the condition number, against exact integers."""

import math
from functools import cache

import numpy as np
import pytest

from truenorm.demo import demonstrate
from truenorm.demo.demonstration import Sweep, from_json, offsets, slope
from truenorm.tools import strict_json

ROUNDED = ("two-pass (textbook)", "corrected two-pass", "rounded exact mean")
FLAT = ("pair mean", "textbook in float64 then cast", "truenorm")
RESULTS = ("y", "dx", "dgamma")
POWERS = {
    **{("one-pass", output): 2 for output in ("variance", *RESULTS)},
    **{("Welford", output): 1 for output in ("variance", *RESULTS)},
    **{(name, output): 1 for name in ROUNDED for output in RESULTS},
    # An error d of the mean adds d**2 to the variance; the correction takes it out again.
    ("two-pass (textbook)", "variance"): 2,
    **{(name, output): 0 for name in FLAT for output in ("variance", *RESULTS)},
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

    def test_a_mean_in_one_number_costs_u_kappa(self, dtype: str) -> None:
        """It is off by at most u*mean, and xhat by u*kappa; the natural scale is at least 1."""
        sweep = swept(dtype)
        curve = sweep.of("y")["rounded exact mean"]
        for offset, error in zip(sweep.offsets, curve.relative, strict=True):
            assert error <= 2 * sweep.u * (offset + 4)

    def test_ours_is_correct_everywhere(self, dtype: str) -> None:
        ours = [curve for curve in swept(dtype).curves if curve.algorithm == "truenorm"]
        assert {curve.output for curve in ours} == set(RESULTS)
        assert max(max(curve.ulp) for curve in ours) <= 0.5

    def test_one_pass_has_no_digit_left_beyond_the_root_of_u(self, dtype: str) -> None:
        sweep = swept(dtype)
        errors = sweep.of("y")["one-pass"].relative
        first = next(k for k, each in enumerate(sweep.offsets) if each > 10 / math.sqrt(sweep.u))
        assert not any(error < 0.1 for error in errors[first:])


def test_offsets_are_half_decades_to_the_limit_of_the_type() -> None:
    for dtype, u in (("float32", 2.0**-24), ("float64", 2.0**-53)):
        found = np.log10(offsets(dtype))
        np.testing.assert_allclose(np.diff(found), 0.5, atol=2e-3)  # of three digits
        assert found[0] == 0
        assert 0 <= -math.log10(u) - found[-1] < 0.5


def test_slope_passes_over_what_is_noise_or_nothing() -> None:
    kappas = [10.0**k for k in range(8)]
    errors = [1e-8, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, math.nan, 7.0]
    assert slope(kappas, errors, 2.0**-24) == 1.0
    assert slope(kappas, [1e-8] * 8, 2.0**-24) == 0.0
    assert slope(kappas, [math.nan] * 8, 2.0**-24) == 0.0


def test_the_seed_decides() -> None:
    """The same seed is the same report, and another one another."""
    first, again, other = (demonstrate(["float32"], size=5, seed=k).sweeps for k in (0, 0, 1))
    assert repr(first) == repr(again)
    assert repr(first) != repr(other)


def test_progress_is_told_what_comes_next() -> None:
    told: list[tuple[int, int, str]] = []
    demonstrate(["float32"], size=3, progress=lambda *what: told.append(what))
    assert [done for done, _, _ in told] == list(range(16))
    assert {total for _, total, _ in told} == {15}
    assert told[0][2] == "float32, offset 1"


def test_rows_may_turn_out_constant() -> None:
    """At the limit of the type two elements are often the same number: the variance is 0."""
    sweep = demonstrate(["float32"], size=2).sweeps[0]
    curve = sweep.of("variance")["rounded exact mean"]
    assert max(curve.relative) <= sweep.u


def test_named_rows_of_a_type_and_json_there_and_back() -> None:
    both = demonstrate(size=2)
    assert {row.dtype for row in both.named} == {"float16", "float32", "float64"}
    assert {row.dtype for row in demonstrate(["float64"], size=2).named} == {"float64"}
    assert repr(from_json(strict_json.dumps(both))) == repr(both)
