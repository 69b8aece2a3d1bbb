"""A check that cannot see must not answer: flat functions, kinks, parts that are not analytic."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

import truenorm as tn
from gradient_check.pairs import Array
from truenorm.gradient_check import Verdict

MethodName = Literal["auto", "jet", "complex", "central"]
Backward = Callable[[Array, Array], Array]


def logistic(x: Array) -> Array:
    """Cast, so that only differences can be taken."""
    return np.asarray(1 / (1 + np.exp(-x))).astype(np.float64)


FLAT: dict[str, tuple[Callable[[Array], Any], Backward, list[float]]] = {
    "beside a large constant": (
        lambda x: 1e8 + 1e-9 * np.arctan(x),
        lambda dy, x: 1e-9 * dy / (1 + x * x),
        [0.3, 1.0, 2.0],
    ),
    "tanh": (np.tanh, lambda dy, x: dy * (1 - np.tanh(x) ** 2), [40.0]),
    "tanh beside others": (np.tanh, lambda dy, x: dy * (1 - np.tanh(x) ** 2), [40.0, 41.0]),
    "logistic": (logistic, lambda dy, x: dy * np.exp(-x) / (1 + np.exp(-x)) ** 2, [45.0, 50.0]),
    "rounded to float32 inside": (
        lambda x: (1 + 1e-10 * np.arctan(x)).astype(np.float32).astype(np.float64),
        lambda dy, x: 1e-10 * dy / (1 + x * x),
        [0.3, 1.0, 2.0],
    ),
}


class TestFlat:
    """In float64 these do not move; whether their derivative is 0 cannot be seen."""

    @pytest.mark.parametrize("name", FLAT)
    @pytest.mark.parametrize("method", ["auto", "central"])
    def test_neither_verdict(self, name: str, method: MethodName) -> None:
        forward, backward, x = FLAT[name]
        result = tn.gradcheck(forward, backward, np.array(x), method=method)
        assert result.verdict is Verdict.INCONCLUSIVE, str(result)

    @pytest.mark.parametrize("name", FLAT)
    def test_the_reason(self, name: str) -> None:
        forward, backward, x = FLAT[name]
        result = tn.gradcheck(forward, backward, np.array(x), method="central")
        assert "in its type it is flat" in str(result)

    @pytest.mark.parametrize("name", FLAT)
    def test_what_is_far_too_large_still_fails(self, name: str) -> None:
        forward, _, x = FLAT[name]
        result = tn.gradcheck(
            forward, lambda dy, x: 1e12 * dy + 0 * x, np.array(x), method="central"
        )
        assert result.verdict is Verdict.FAIL, str(result)

    def test_jets_pass_the_derivative_of_the_formula(self) -> None:
        pytest.importorskip("flint")

        def right(dy: Array, x: Array) -> Array:
            return np.asarray(dy / np.cosh(x) ** 2)

        assert tn.gradcheck(np.tanh, right, np.array([40.0]), method="jet")
        result = tn.gradcheck(np.tanh, lambda dy, x: 0 * dy * x, np.array([40.0]), method="jet")
        assert "what it returns has 0" in str(result)


def relu(x: Array) -> Any:
    return np.where(x > 0, x, 0 * x)


class TestKinks:
    """Left and right of a kink there are two derivatives, and at it none."""

    @pytest.mark.parametrize("method", ["complex", "central"])
    @pytest.mark.parametrize("at", [1e-13, -1e-13, 1e-300])
    def test_nearer_than_the_smallest_step(self, at: float, method: MethodName) -> None:
        x = np.array([at, 1.0, -1.0])
        result = tn.gradcheck(relu, lambda dy, x: dy * (x > 0), x, method=method)
        assert result.verdict is not Verdict.FAIL, str(result)

    @pytest.mark.parametrize("at", [1e-13, -1e-13, 1e-300])
    def test_jets_are_nearer(self, at: float) -> None:
        pytest.importorskip("flint")
        x = np.array([at, 1.0, -1.0])
        assert tn.gradcheck(relu, lambda dy, x: dy * (x > 0), x, method="jet")
        wrong = tn.gradcheck(relu, lambda dy, x: dy * (x < 0), x, method="jet")
        assert wrong.verdict is Verdict.FAIL

    @pytest.mark.parametrize("method", ["auto", "central"])
    @pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("size", [3, 600])
    def test_at_it(self, slope: float, size: int, method: MethodName) -> None:
        x = np.random.default_rng(0).standard_normal(size)
        x[1] = 0.0

        def backward(dy: Array, x: Array) -> Array:
            return np.asarray(dy * np.where(x == 0, slope, x > 0))

        result = tn.gradcheck(relu, backward, x, method=method)
        assert result.verdict is Verdict.INCONCLUSIVE, str(result)
        assert "kink" in str(result)

    @pytest.mark.parametrize("method", ["auto", "central"])
    def test_abs(self, method: MethodName) -> None:
        x = np.array([0.0, 1.0, -1.0])
        result = tn.gradcheck(np.abs, lambda dy, x: dy * np.sign(x), x, method=method)
        assert result.verdict is Verdict.INCONCLUSIVE, str(result)
        assert "kink" in str(result)

    def test_a_complex_step_at_it(self) -> None:
        """Beside a constant, f(conj z) and conj f(z) are alike, and the step sees the right."""
        x = np.array([0.0, 1.0, -1.0])
        for slope in (0.0, 0.5, 1.0):

            def backward(dy: Array, x: Array, slope: float = slope) -> Array:
                return np.asarray(dy * np.where(x == 0, slope, x > 0))

            result = tn.gradcheck(lambda x: 100 + relu(x), backward, x, method="complex")
            assert result.verdict is Verdict.INCONCLUSIVE, str(result)

    @pytest.mark.parametrize("size", [8, 600])
    def test_kinks_far_enough_away_do_no_harm(self, size: int) -> None:
        x = np.random.default_rng(0).standard_normal(size)
        result = tn.gradcheck(relu, lambda dy, x: dy * (x > 0), x, method="central")
        assert result, str(result)
        wrong = tn.gradcheck(relu, lambda dy, x: dy * (x > 0) * (1 + 1e-3), x, method="central")
        assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("told", [0.0, 1.0])
def test_a_part_that_is_not_analytic(told: float) -> None:
    """A complex step does not see abs: it can clear a gradient neither with it nor without."""
    share = 1e-11
    result = tn.gradcheck(
        lambda x: x**2 + share * np.abs(x),
        lambda dy, x: dy * (2 * x + told * share * np.sign(x)),
        np.array([1.0, 0.5, -1.0]),
        method="complex",
    )
    assert result.verdict is Verdict.INCONCLUSIVE, str(result)
    assert "not analytic" in str(result)


@pytest.mark.parametrize("method", ["jet", "complex", "central"], indirect=True)
def test_each_gradient_has_its_own_tolerance(method: MethodName) -> None:
    """One in float32 says nothing of another in float64."""
    x = np.linspace(1, 2, 5)
    weight = x.astype(np.float32)

    def backward(dy: Array, x: Array, weight: Array, factor: float = 1.0) -> tuple[Array, Array]:
        return factor * dy * weight, (dy * x).astype(np.float32)

    def wrong(dy: Array, x: Array, weight: Array) -> tuple[Array, Array]:
        return backward(dy, x, weight, 1 + 1e-4)

    right = tn.gradcheck(lambda x, weight: x * weight, backward, [x, weight], method=method)
    assert right, str(right)
    tolerances = [found.tol for found in right.inputs if found is not None]
    assert tolerances[1] > 1e4 * tolerances[0] or method == "central"
    result = tn.gradcheck(lambda x, weight: x * weight, wrong, [x, weight], method=method)
    assert result.verdict is Verdict.FAIL
    assert result.worst_input == 0
