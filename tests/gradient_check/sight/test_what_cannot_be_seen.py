"""A check that cannot see must not answer: flat functions, kinks, parts that are not analytic."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from gradient_check.checking import FAIL, INCONCLUSIVE, PASS, demand, forbid
from gradient_check.pairs import Array, tanh_backward

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
    "tanh": (np.tanh, tanh_backward, [40.0]),
    "tanh beside others": (np.tanh, tanh_backward, [40.0, 41.0]),
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
    def test_neither_verdict(self, name: str) -> None:
        forward, backward, x = FLAT[name]
        demand(INCONCLUSIVE, forward, backward, np.array(x))
        result = demand(INCONCLUSIVE, forward, backward, np.array(x), method="central")
        assert "in its type it is flat" in str(result)

    @pytest.mark.parametrize("name", FLAT)
    def test_what_is_far_too_large_still_fails(self, name: str) -> None:
        forward, _, x = FLAT[name]
        demand(FAIL, forward, lambda dy, x: 1e12 * dy + 0 * x, np.array(x), method="central")

    def test_jets_pass_the_derivative_of_the_formula(self) -> None:
        pytest.importorskip("flint")
        x = np.array([40.0])
        demand(PASS, np.tanh, lambda dy, x: dy / np.cosh(x) ** 2, x, method="jet")
        zero = demand(INCONCLUSIVE, np.tanh, lambda dy, x: 0 * dy * x, x, method="jet")
        assert "what it returns has 0" in str(zero)


def relu(x: Array) -> Any:
    return np.where(x > 0, x, 0 * x)


def relu_backward(dy: Array, x: Array, at_zero: float = 0.0, factor: float = 1.0) -> Array:
    return np.asarray(factor * dy * np.where(x == 0, at_zero, x > 0))


class TestKinks:
    """Left and right of a kink there are two derivatives, and at it none."""

    @pytest.mark.parametrize("at", [1e-13, -1e-13, 1e-300])
    def test_nearer_than_the_smallest_step(self, at: float, method: str) -> None:
        """Jets are nearer."""
        x = np.array([at, 1.0, -1.0])
        if method == "jet":
            demand(PASS, relu, relu_backward, x, method=method)
            demand(FAIL, relu, lambda dy, x: dy * (x < 0), x, method=method)
        else:
            forbid(FAIL, relu, relu_backward, x, method=method)

    @pytest.mark.parametrize("method", ["auto", "central"])
    @pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("size", [3, 600])
    def test_at_it(self, slope: float, size: int, method: str) -> None:
        x = np.random.default_rng(0).standard_normal(size)
        x[1] = 0.0
        backward = partial(relu_backward, at_zero=slope)
        assert "kink" in str(demand(INCONCLUSIVE, relu, backward, x, method=method))

    @pytest.mark.parametrize("method", ["auto", "central"])
    def test_abs(self, method: str) -> None:
        x = np.array([0.0, 1.0, -1.0])
        result = demand(INCONCLUSIVE, np.abs, lambda dy, x: dy * np.sign(x), x, method=method)
        assert "kink" in str(result)

    @pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
    def test_a_complex_step_at_it(self, slope: float) -> None:
        """Beside a constant, f(conj z) and conj f(z) are alike, and the step sees the right."""
        x, backward = np.array([0.0, 1.0, -1.0]), partial(relu_backward, at_zero=slope)
        demand(INCONCLUSIVE, lambda x: 100 + relu(x), backward, x, method="complex")

    @pytest.mark.parametrize("size", [8, 600])
    def test_kinks_far_enough_away_do_no_harm(self, size: int) -> None:
        x = np.random.default_rng(0).standard_normal(size)
        demand(PASS, relu, relu_backward, x, method="central")
        demand(FAIL, relu, partial(relu_backward, factor=1 + 1e-3), x, method="central")


@pytest.mark.parametrize("told", [0.0, 1e-11])
def test_a_part_that_is_not_analytic(told: float) -> None:
    """A complex step does not see abs: it can clear a gradient neither with it nor without."""
    result = demand(
        INCONCLUSIVE,
        lambda x: x**2 + 1e-11 * np.abs(x),
        lambda dy, x: dy * (2 * x + told * np.sign(x)),
        np.array([1.0, 0.5, -1.0]),
        method="complex",
    )
    assert "not analytic" in str(result)
