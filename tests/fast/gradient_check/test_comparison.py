"""The rule of verdicts: errors, floors, leeway, kinks and rounding of one gradient."""

import math
from dataclasses import replace

import numpy as np
import pytest

from shared.gradient_check.pairs import FAIL, INCONCLUSIVE, PASS, demand
from truenorm.gradient_check import GradientCheck, InputCheck, Verdict
from truenorm.gradient_check.comparison import compare, worst_of
from truenorm.gradient_check.method import Estimate


def check_of(
    error: float, floor: float, *, leeway: float = 0.0, tol: float = 1.0, scale: float = 1.0
) -> InputCheck:
    """Compare a gradient with a derivative of 0."""
    return compare(InputCheck("x", tol, size=1), error, Estimate(0.0, floor, scale, leeway), scale)


class TestRule:
    @pytest.mark.parametrize(
        ("error", "floor", "verdict"),
        [
            (0.5, 0.5, PASS),
            (1.0, 1.0, PASS),
            (0.0, 1.1, INCONCLUSIVE),
            (1.5, 0.6, INCONCLUSIVE),
            (1.5, 0.4, FAIL),
            (2.5, 1.4, INCONCLUSIVE),
            (2.5, 0.9, FAIL),
            (9e9, math.inf, INCONCLUSIVE),
            (0.0, math.nan, INCONCLUSIVE),
            (math.nan, 0.0, FAIL),
            (math.inf, 0.0, FAIL),
            (math.nan, math.inf, FAIL),
        ],
    )
    def test_error_and_floor(self, error: float, floor: float, verdict: Verdict) -> None:
        assert check_of(error, floor).verdict is verdict
        result = GradientCheck((check_of(error, floor),), "central", "")
        assert result.verdict is verdict
        assert bool(result) is (verdict is PASS)

    @pytest.mark.parametrize(("error", "verdict"), [(1.0, PASS), (5.5, INCONCLUSIVE), (6.5, FAIL)])
    def test_leeway(self, error: float, verdict: Verdict) -> None:
        """Both derivatives count as right: that of the formula, and that of the rounded result."""
        assert check_of(error, 0.0, leeway=5.0).verdict is verdict

    def test_floor_decides_if_nothing_changes(self) -> None:
        assert check_of(0.0, 5.0, scale=0.0, tol=0.1).verdict is INCONCLUSIVE
        assert check_of(9.0, 5.0, scale=0.0, tol=0.1).verdict is FAIL

    def test_inconclusive_element_does_not_hide_a_failing_one(self) -> None:
        check = worst_of([check_of(3.0, 0.0), check_of(4.0, 5.0)])
        assert (check.verdict, check.error, check.floor) == (FAIL, 3.0, 0.0)

    @pytest.mark.parametrize(
        ("number", "verdict", "error", "floor"),
        [(0.0, INCONCLUSIVE, 1.0, 2.1), (1.5, INCONCLUSIVE, 0.5, 2.1), (3.0, FAIL, 1.0, 0.1)],
    )
    def test_between_two_derivatives(
        self, number: float, verdict: Verdict, error: float, floor: float
    ) -> None:
        """The derivatives are 0 and 2; outside of them, the jump is no part of the floor."""
        estimate = Estimate(1.0, 0.1, 1.0, leeway=0.3, jump=2.0)
        check = compare(InputCheck("x", 0.01, size=1), number, estimate, 1.0)
        assert check.verdict is verdict
        assert (check.error, check.floor) == pytest.approx((error, floor))

    def test_each_gradient_has_its_own_tolerance(self) -> None:
        tight, loose = check_of(1e-4, 0.0, tol=1e-12), check_of(1e-3, 0.0, tol=0.1)
        result = GradientCheck((loose, tight), "jet", "")
        assert (result.verdict, result.worst_input) == (FAIL, 1)
        assert (result.error, result.tol) == (1e-4, 1e-12)

    def test_worst_input_decides(self) -> None:
        right, unclear, wrong = check_of(0.0, 0.0), check_of(0.0, 2.0), check_of(9.0, 0.0)
        for inputs, verdict in [
            ((right, right, right), PASS),
            ((right, unclear), INCONCLUSIVE),
            ((unclear, wrong, right), FAIL),
        ]:
            assert GradientCheck(inputs, "", "").verdict is verdict

    def test_nan_is_worst(self) -> None:
        checks = (check_of(1.0, 0.0), check_of(9e9, 0.0), check_of(math.nan, 0.0))
        for order, worst in ((checks, 2), (checks[::-1], 0)):
            result = GradientCheck(order, "", "")
            assert result.worst_input == worst
            assert math.isnan(result.error)
        assert GradientCheck(checks[:2], "", "").worst_input == 1

    def test_no_inputs(self) -> None:
        result = demand(INCONCLUSIVE, lambda: np.ones(3), lambda _: [], [])
        assert not result
        assert (result.worst_input, result.worst, result.floor) == (None, None, math.inf)
        assert math.isnan(result.error)

    def test_rounding_relaxes_the_tolerance_of_an_element(self) -> None:
        """An element that may lose digits does not relax the tolerance of another."""
        check = InputCheck("x", 1e-12, size=2)
        lossy = compare(check, 1 + 1e-10, Estimate(1.0, 0.0, 1.0), 1.0, rounding=1e-9)
        exact = compare(check, 1 + 1e-10, Estimate(1.0, 0.0, 1.0), 1.0)
        assert (lossy.verdict, exact.verdict) == (PASS, FAIL)
        assert "agrees to 9 digits, rounding of backward allows 9" in str(lossy)
        assert worst_of([lossy, exact]).verdict is FAIL
        right = replace(exact, error=0.0, excess=0.0)
        assert (worst_of([lossy, right]).verdict, worst_of([lossy, right]).tol) == (PASS, 1e-9)

    def test_rounding_relaxes_up_to_the_tolerance_of_central_differences(self) -> None:
        check = InputCheck("x", 1e-12, size=1)
        lossy = compare(check, 1 + 1e-5, Estimate(1.0, 0.0, 1.0), 1.0, rounding=1e-4)
        assert lossy.verdict is INCONCLUSIVE
