"""A check passes only what it has seen to be right."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from gradient_check.checking import FAIL, INCONCLUSIVE, PASS, demand, forbid
from gradient_check.pairs import Array, data, tanh_backward
from truenorm.gradient_check import GradientCheck, InputCheck, Verdict
from truenorm.gradient_check.comparison import compare, worst_of
from truenorm.gradient_check.method import Estimate


def found(
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
        assert found(error, floor).verdict is verdict
        result = GradientCheck((found(error, floor),), "central", "")
        assert result.verdict is verdict
        assert bool(result) is (verdict is PASS)

    @pytest.mark.parametrize(("error", "verdict"), [(1.0, PASS), (5.5, INCONCLUSIVE), (6.5, FAIL)])
    def test_what_the_type_hides(self, error: float, verdict: Verdict) -> None:
        """Two derivatives are right there, that of the formula and that of what is returned."""
        assert found(error, 0.0, leeway=5.0).verdict is verdict

    def test_where_nothing_moves_the_floor_is_all_that_is_known(self) -> None:
        assert found(0.0, 5.0, scale=0.0).verdict is INCONCLUSIVE
        assert found(9.0, 5.0, scale=0.0).verdict is FAIL

    def test_one_element_that_cannot_be_seen_does_not_clear_another(self) -> None:
        check = worst_of([found(3.0, 0.0), found(4.0, 5.0)])
        assert (check.verdict, check.error, check.floor) == (FAIL, 3.0, 5.0)

    def test_each_gradient_has_its_own_tolerance(self) -> None:
        tight, loose = found(1e-4, 0.0, tol=1e-12), found(1e-3, 0.0, tol=0.1)
        result = GradientCheck((loose, tight), "jet", "")
        assert (result.verdict, result.worst_input) == (FAIL, 1)
        assert (result.error, result.tol) == (1e-4, 1e-12)

    def test_the_worst_input_decides(self) -> None:
        right, unseen, wrong = found(0.0, 0.0), found(0.0, 2.0), found(9.0, 0.0)
        for inputs, verdict in [
            ((right, right, right), PASS),
            ((right, unseen), INCONCLUSIVE),
            ((unseen, wrong, right), FAIL),
        ]:
            assert GradientCheck(inputs, "", "").verdict is verdict

    def test_what_is_not_a_number_is_worst(self) -> None:
        checks = (found(1.0, 0.0), found(9e9, 0.0), found(math.nan, 0.0))
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

    def test_rounding_relaxes_a_tolerance_element_by_element(self) -> None:
        """One element that may lose digits does not let another one be wrong."""
        asked = InputCheck("x", 1e-12, size=2)
        lossy = compare(asked, 1 + 1e-10, Estimate(1.0, 0.0, 1.0), 1.0, rounding=1e-9)
        exact = compare(asked, 1 + 1e-10, Estimate(1.0, 0.0, 1.0), 1.0)
        assert (lossy.verdict, exact.verdict) == (PASS, FAIL)
        assert "agrees to 9 digits, float64 rounding allows 9" in str(lossy)
        assert worst_of([lossy, exact]).verdict is FAIL
        right = replace(exact, error=0.0, excess=0.0)
        assert (worst_of([lossy, right]).verdict, worst_of([lossy, right]).tol) == (PASS, 1e-9)

    def test_rounding_relaxes_no_further_than_differences_see(self) -> None:
        asked = InputCheck("x", 1e-12, size=1)
        vague = compare(asked, 1 + 1e-5, Estimate(1.0, 0.0, 1.0), 1.0, rounding=1e-4)
        assert vague.verdict is INCONCLUSIVE


class TestFloor:
    def test_a_tolerance_below_the_floor(self, method: Any) -> None:
        """Even an error of exactly zero does not pass then."""
        pair = (np.exp, lambda dy, x: dy * np.exp(x), np.array([0.5]))
        floor = tn.gradcheck(*pair, method=method, tol=1e-300).floor
        forbid(PASS, *pair, method=method, tol=floor / 2)

    @pytest.mark.parametrize("factor", [0.0, 1.0, 1 + 1e-5])
    @pytest.mark.parametrize(
        "rounded",
        [lambda y: y.astype(np.float32).astype(np.float64), lambda y: np.round(y, 6)],
        ids=["float32", "six digits"],
    )
    @pytest.mark.parametrize("early", [True, False], ids=["of x", "of y"])
    def test_rounding_inside_forward(
        self, rounded: Callable[[Array], Array], factor: float, early: bool
    ) -> None:
        """Nearby values are equal then: differences of zero are no derivative of zero."""

        def forward(x: Array) -> Array:
            return np.tanh(rounded(x)) if early else rounded(np.tanh(x))

        def backward(dy: Array, x: Array) -> Array:
            return factor * tanh_backward(dy, x)

        pair = (forward, backward, data((4,)))
        for tol in (1e-6, 1e-8):
            forbid(FAIL if factor == 1 else PASS, *pair, method="central", tol=tol)
        demand(PASS if factor else FAIL, *pair, method="central", tol=0.01)

    @pytest.mark.parametrize("method", ["complex", "central"])
    def test_random_noise_in_forward(self, method: str) -> None:
        random = np.random.default_rng(0)

        def noisy(x: Array) -> Array:
            return np.tanh(x) * (1 + 1e-8 * random.standard_normal(x.shape))

        demand(INCONCLUSIVE, noisy, tanh_backward, data((4,)), method=method)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
class TestNotANumber:
    @pytest.mark.parametrize(
        "values", [[np.nan], [np.inf], [-np.inf], [np.inf, -np.inf] * 10], ids=str
    )
    @pytest.mark.parametrize("size", [5, 600])
    def test_in_a_gradient(self, values: list[float], size: int, method: str) -> None:
        """Also where the sum of infinities of both signs would have no value."""

        def backward(dy: Array, x: Array) -> Array:
            dx = tanh_backward(dy, x)
            dx[2] = -2.0
            dx[4 : 4 + len(values)] = values[: size - 4]
            return dx

        result = demand(FAIL, np.tanh, backward, data((size,)), method=method)
        assert result.worst == ((4,) if size == 5 else None)

    @pytest.mark.parametrize("slope", [0.0, 1.0, np.nan])
    def test_at_the_edge_of_the_domain(self, slope: float, method: str) -> None:
        """The root's derivative at 0 is infinite, and below there is none."""

        def backward(dy: Array, x: Array) -> Array:
            return np.asarray(dy * np.where(x == 0, slope, 0.5 / np.sqrt(x)))

        pair = (np.sqrt, backward, np.array([1.0, 0.0, 4.0]))
        forbid(PASS, *pair, method=method)
        if np.isnan(slope):
            demand(FAIL, *pair, method=method)

    @pytest.mark.parametrize(
        ("forward", "backward", "where"),
        [
            (lambda x: x * np.nan, lambda dy, x: 0 * dy * x, "nan at index [0] of its output"),
            (np.log, lambda dy, x: dy / x, "nan at index [1] of its output"),
            (lambda x: x.sum() / 0.0, lambda dy, x: dy + 0 * x, "inf: it has no derivative"),
            (lambda x: (x, np.log(x)), lambda dys, x: dys[0] + dys[1] / x, "[1] of output 1"),
        ],
        ids=["times NaN", "logarithm", "infinite sum", "second output"],
    )
    def test_forward_is_not_finite(self, forward: Any, backward: Any, where: str) -> None:
        """Jets would pass 1/x as the derivative of the logarithm below 0."""
        for method in ("auto", "central"):
            x = np.array([0.5, -1.0, -2.0])
            result = demand(INCONCLUSIVE, forward, backward, x, method=method)
            for shown in (str(result), repr(result)):
                assert where in shown
            assert "Choose inputs at which forward is finite" in str(result)
            assert "method=" not in str(result)

    def test_a_real_mistake_beside_an_element_that_cannot_be_seen(self) -> None:
        x = np.array([1.0, 0.0, 4.0])
        forbid(PASS, np.sqrt, lambda dy, _: 5 * dy, x, method="central")


class TestInATest:
    """What a failed assertion shows."""

    X = np.array([0.5, 1.5])

    def test_repr_is_one_line_that_says_what_is_wrong(self) -> None:
        result = demand(
            FAIL, lambda x: x * x, lambda dy, x: [2, 3] * dy * x, self.X, method="central"
        )
        shown = repr(result)
        assert "\n" not in shown
        assert len(shown) <= 240  # pytest cuts the middle out of what is longer
        analytic = f"{result.inputs[0].analytic:.12g}"
        for part in ("FAIL", "gradient of x at [1]", analytic, "error 5.0e-01"):
            assert part in shown

    @pytest.mark.parametrize("check", [tn.gradcheck, tn.dot_test])
    def test_raise_exception(self, check: Callable[..., GradientCheck]) -> None:
        with pytest.raises(AssertionError, match="FAIL: gradient check by"):
            check(np.square, lambda dy, x: 3 * dy * x, self.X, raise_exception=True)
        assert check(np.square, lambda dy, x: 2 * dy * x, self.X, raise_exception=True)
        with pytest.raises(AssertionError, match="INCONCLUSIVE"):
            check(np.abs, lambda dy, x: dy * x, 0 * self.X, method="central", raise_exception=True)
