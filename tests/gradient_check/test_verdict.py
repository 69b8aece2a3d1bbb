"""A check passes only what it has seen to be right."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

import truenorm as tn
from gradient_check.pairs import Array, data
from truenorm.gradient_check import GradientCheck, InputCheck, Verdict
from truenorm.gradient_check.comparing import compare
from truenorm.gradient_check.method import Estimate

MethodName = Literal["jet", "complex", "central"]


def tanh_backward(dy: Array, x: Array) -> tuple[Array]:
    return (dy * (1 - np.tanh(x) ** 2),)


def found(
    error: float, floor: float, *, leeway: float = 0.0, tol: float = 1.0, name: str = "x"
) -> InputCheck:
    """Compare a gradient with a derivative of 0, of scale 1."""
    asked = InputCheck(name, tol, size=1)
    return compare(asked, [error], [Estimate(0.0, floor, 1.0, leeway)], [1.0])[1]


class TestRule:
    @pytest.mark.parametrize(
        ("error", "floor", "verdict"),
        [
            (0.5, 0.5, Verdict.PASS),
            (1.0, 1.0, Verdict.PASS),
            (0.0, 1.1, Verdict.INCONCLUSIVE),
            (1.5, 0.6, Verdict.INCONCLUSIVE),
            (1.5, 0.4, Verdict.FAIL),
            (2.5, 1.4, Verdict.INCONCLUSIVE),
            (2.5, 0.9, Verdict.FAIL),
            (9e9, math.inf, Verdict.INCONCLUSIVE),
            (0.0, math.nan, Verdict.INCONCLUSIVE),
            (math.nan, 0.0, Verdict.FAIL),
            (math.inf, 0.0, Verdict.FAIL),
            (math.nan, math.inf, Verdict.FAIL),
        ],
    )
    def test_error_and_floor(self, error: float, floor: float, verdict: Verdict) -> None:
        assert found(error, floor).verdict is verdict
        result = GradientCheck((found(error, floor),), "central", "")
        assert result.verdict is verdict
        assert bool(result) is (verdict is Verdict.PASS)

    @pytest.mark.parametrize(
        ("error", "leeway", "verdict"),
        [
            (1.0, 5.0, Verdict.PASS),
            (5.5, 5.0, Verdict.INCONCLUSIVE),
            (6.5, 5.0, Verdict.FAIL),
        ],
    )
    def test_what_the_type_hides(self, error: float, leeway: float, verdict: Verdict) -> None:
        """Two derivatives are right there, that of the formula and that of what is returned."""
        assert found(error, 0.0, leeway=leeway).verdict is verdict

    def test_where_nothing_moves_the_floor_is_all_that_is_known(self) -> None:
        asked = InputCheck("x", 1.0, size=1)
        for given, verdict in [(0.0, Verdict.INCONCLUSIVE), (9.0, Verdict.FAIL)]:
            flat = Estimate(0.0, 5.0, 0.0)
            assert compare(asked, [given], [flat], [0.0])[1].verdict is verdict

    def test_one_element_that_cannot_be_seen_does_not_clear_another(self) -> None:
        estimates = [Estimate(0.0, 0.0, 1.0), Estimate(0.0, 5.0, 1.0)]
        asked = InputCheck("x", 1.0, size=2)
        worst, check = compare(asked, [3.0, 4.0], estimates, [1.0, 1.0])
        assert (worst, check.verdict, check.error, check.floor) == (0, Verdict.FAIL, 3.0, 5.0)

    def test_each_gradient_has_its_own_tolerance(self) -> None:
        tight, loose = found(1e-4, 0.0, tol=1e-12, name="x"), found(1e-3, 0.0, tol=0.1, name="w")
        result = GradientCheck((loose, tight), "jet", "")
        assert (result.verdict, result.worst_input) == (Verdict.FAIL, 1)
        assert (result.error, result.tol) == (1e-4, 1e-12)

    def test_the_worst_input_decides(self) -> None:
        right, unseen, wrong = found(0.0, 0.0), found(0.0, 2.0), found(9.0, 0.0)
        for inputs, verdict in [
            ((right, right, None), Verdict.PASS),
            ((right, unseen), Verdict.INCONCLUSIVE),
            ((unseen, wrong, right), Verdict.FAIL),
        ]:
            assert GradientCheck(inputs, "", "").verdict is verdict

    def test_what_is_not_a_number_is_worst(self) -> None:
        checks = (found(1.0, 0.0), found(math.nan, 0.0), found(9e9, 0.0))
        result = GradientCheck(checks, "", "")
        assert result.worst_input == 1
        assert math.isnan(result.error)
        assert GradientCheck(checks[::2], "", "").worst_input == 1

    def test_nothing_was_checked(self) -> None:
        result = tn.gradcheck(np.tanh, lambda *_: [None], [np.ones(3)], method="central")
        assert result.verdict is Verdict.INCONCLUSIVE
        assert not result
        assert (result.worst_input, result.worst) == (None, None)
        assert math.isnan(result.error)
        assert "skipped: backward returned None" in str(result)


class TestFloor:
    def test_a_tolerance_below_the_floor(self, method: MethodName) -> None:
        """Even an error of exactly zero does not pass then."""
        x = np.array([0.5])
        result = tn.gradcheck(np.exp, lambda dy, x: (dy * np.exp(x),), [x], method=method)
        assert result.verdict is Verdict.PASS
        tol = result.floor / 2
        close = tn.gradcheck(
            np.exp,
            lambda dy, x: (dy * np.exp(x),),
            [x],
            method=method,
            tol=tol,
        )
        assert close.verdict is not Verdict.PASS

    @pytest.mark.parametrize("factor", [0.0, 1.0, 1 + 1e-5])
    @pytest.mark.parametrize(
        "rounded",
        [
            lambda y: y.astype(np.float32).astype(np.float64),
            lambda y: np.round(y, 6),
        ],
        ids=["float32", "six digits"],
    )
    @pytest.mark.parametrize("early", [True, False], ids=["of x", "of y"])
    def test_rounding_inside_forward(
        self, rounded: Callable[[Array], Array], factor: float, early: bool
    ) -> None:
        """Nearby values are equal then: differences of zero are no derivative of zero."""

        def forward(x: Array) -> Array:
            return np.tanh(rounded(x)) if early else rounded(np.tanh(x))

        def backward(dy: Array, x: Array) -> tuple[Array]:
            return (factor * tanh_backward(dy, x)[0],)

        never = Verdict.FAIL if factor == 1 else Verdict.PASS
        for tol in (1e-6, 1e-8):
            result = tn.gradcheck(forward, backward, data((4,)), method="central", tol=tol)
            assert result.verdict is not never, str(result)
        loose = tn.gradcheck(forward, backward, data((4,)), method="central", tol=0.01)
        assert loose.verdict is (Verdict.PASS if factor else Verdict.FAIL), str(loose)

    @pytest.mark.parametrize("method", ["complex", "central"], indirect=True)
    def test_random_noise_in_forward(self, method: MethodName) -> None:
        random = np.random.default_rng(0)

        def noisy(x: Array) -> Array:
            return np.tanh(x) * (1 + 1e-8 * random.standard_normal(x.shape))

        result = tn.gradcheck(noisy, tanh_backward, data((4,)), method=method)
        assert result.verdict is Verdict.INCONCLUSIVE, str(result)


class TestNotANumber:
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("size", [5, 600])
    def test_in_a_gradient(self, value: float, size: int, method: MethodName) -> None:
        def backward(dy: Array, x: Array) -> tuple[Array]:
            dx = tanh_backward(dy, x)[0]
            dx[2], dx[4] = -2.0, value
            return (dx,)

        result = tn.gradcheck(np.tanh, backward, data((size,)), method=method)
        assert result.verdict is Verdict.FAIL
        assert result.worst == ((4,) if size == 5 else None)

    def test_infinities_of_both_signs_in_a_large_gradient(self) -> None:
        def backward(dy: Array, x: Array) -> tuple[Array]:
            dx = tanh_backward(dy, x)[0]
            dx[:20] = [np.inf, -np.inf] * 10
            return (dx,)

        result = tn.gradcheck(np.tanh, backward, data((600,)), method="complex")
        assert result.verdict is Verdict.FAIL

    @pytest.mark.parametrize("slope", [0.0, 1.0, np.nan])
    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_at_the_edge_of_the_domain(self, slope: float, method: MethodName) -> None:
        """The root's derivative at 0 is infinite, and below there is none."""

        def backward(dy: Array, x: Array) -> tuple[Array]:
            return (dy * np.where(x == 0, slope, 0.5 / np.sqrt(x)),)

        result = tn.gradcheck(np.sqrt, backward, [np.array([1.0, 0.0, 4.0])], method=method)
        assert result.verdict is not Verdict.PASS, str(result)
        if np.isnan(slope):
            assert result.verdict is Verdict.FAIL, str(result)

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_forward_is_not_a_number(self) -> None:
        def forward(x: Array) -> Array:
            return x * np.nan

        def backward(dy: Array, x: Array) -> tuple[Array]:
            return (0 * dy * x,)

        result = tn.gradcheck(forward, backward, data((3,)))
        assert result.verdict is Verdict.INCONCLUSIVE, str(result)
        result = tn.gradcheck(forward, backward, data((3,)), method="central")
        assert result.verdict is Verdict.INCONCLUSIVE, str(result)

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_a_real_mistake_beside_an_element_that_cannot_be_seen(self) -> None:
        def backward(dy: Array, _: Array) -> tuple[Array]:
            return (5 * dy,)

        x = np.array([1.0, 0.0, 4.0])
        assert not tn.gradcheck(np.sqrt, backward, [x], method="central")


class TestInATest:
    """What a failed assertion shows."""

    def test_repr_is_one_line_that_says_what_is_wrong(self) -> None:
        x = np.array([0.5, 1.5])
        result = tn.gradcheck(lambda x: x * x, lambda dy, x: 3 * dy * x, x, method="central")
        shown = repr(result)
        assert "\n" not in shown
        assert len(shown) <= 240  # pytest cuts the middle out of what is longer
        found = result.inputs[0]
        assert found is not None
        for part in ("FAIL", "gradient of x at [1]", f"{found.analytic:.12g}", "error 5.0e-01"):
            assert part in shown

    def test_raise_exception(self) -> None:
        x = np.array([0.5, 1.5])
        for check in (tn.gradcheck, tn.dot_test):
            with pytest.raises(AssertionError, match="FAIL: gradient check by"):
                check(np.square, lambda dy, x: 3 * dy * x, x, raise_exception=True)
            assert check(np.square, lambda dy, x: 2 * dy * x, x, raise_exception=True)

    def test_what_cannot_be_seen_is_raised_too(self) -> None:
        with pytest.raises(AssertionError, match="INCONCLUSIVE"):
            tn.gradcheck(
                np.abs, lambda dy, x: dy * x, np.zeros(1), method="central", raise_exception=True
            )
