"""Pairs as people write them, at points that are hard for one method or another."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from gradient_check.checking import FAIL, INCONCLUSIVE, PASS, demand, forbid
from gradient_check.pairs import PAIRS, Array, layer_norm, softmax, tanh_backward

ROWS = 8
LABELS = np.arange(ROWS) % 10


def cross_entropy(x: Array) -> Any:
    top = x.max(axis=-1, keepdims=True)
    sums = np.exp(x - top).sum(axis=-1)
    return (np.log(sums) + top[:, 0] - x[np.arange(ROWS), LABELS]).mean()


def cross_entropy_backward(dy: Array, x: Array, factor: float = 1.0) -> Array:
    shares = softmax(x)
    shares[np.arange(ROWS), LABELS] -= 1
    return np.asarray(factor * dy * shares / ROWS)


@pytest.mark.usefixtures("no_flint")
def test_a_mean_loss_has_an_answer_without_jets() -> None:
    """A share of 1/80 is too small beside the loss for a complex step at 1e-12, not at 1e-6."""
    x = np.random.default_rng(0).standard_normal((ROWS, 10))
    result = demand(PASS, cross_entropy, cross_entropy_backward, x)
    assert (result.method, result.tol) == ("complex", 1e-6)
    demand(INCONCLUSIVE, cross_entropy, cross_entropy_backward, x, method="complex")
    demand(FAIL, cross_entropy, partial(cross_entropy_backward, factor=ROWS), x)


def test_the_first_that_was_inconclusive_is_returned_if_all_are() -> None:
    pytest.importorskip("flint")
    result = demand(INCONCLUSIVE, np.tanh, lambda dy, x: 0 * dy * x, np.array([40.0]))
    assert result.method == "jet"


@pytest.mark.parametrize("method", ["complex", "central"])
class TestSteep:
    """Where a function moves over a small part of the spread, its curvature is no noise."""

    def test_a_steep_function(self, method: str) -> None:
        def backward(dy: Array, x: Array) -> Array:
            return np.asarray(300 * dy / np.cosh(300 * (x - 1)) ** 2)

        forbid(FAIL, lambda x: np.tanh(300 * (x - 1)), backward, np.ones(3), method=method)

    def test_a_constant_row(self, method: str) -> None:
        x = np.random.default_rng(0).standard_normal((3, 8))
        x[1] = 0.7
        for rows in (x, np.ones((3, 8))):
            inputs = [rows, np.ones(8), np.zeros(8)]
            forbid(FAIL, layer_norm, PAIRS["layer norm"].backward, inputs, method=method)


def test_digits_lost_beside_larger_elements_are_no_error(method: str) -> None:
    """1 - tanh(8)**2 has seven digits less than 1, of which the check is told."""
    demand(PASS, np.tanh, tanh_backward, np.array([0.5, 8.0]), method=method)


def test_a_derivative_of_zero(method: str) -> None:
    forbid(FAIL, lambda x: x**3, lambda dy, x: 3 * dy * x * x, np.zeros(1), method=method)


def test_a_gradient_that_is_zero_but_for_rounding(method: str) -> None:
    """A softmax does not change with a shift."""
    x = np.random.default_rng(0).standard_normal(5)
    shift = np.array([0.3])
    forbid(FAIL, lambda by: softmax(x + by), lambda dy, _: 1e-17 * dy[:1], shift, method=method)


def test_a_gradient_far_too_small_in_a_projection(method: str) -> None:
    x = np.random.default_rng(0).standard_normal(600)
    demand(FAIL, lambda x: x * x, lambda dy, x: 2e-20 * dy * x, x, method=method)


class TestReasons:
    """What a check says where it has no answer, or what it must not say."""

    def test_a_tie_of_a_maximum(self) -> None:
        pytest.importorskip("flint")

        def pool(x: Array) -> Any:
            return x.reshape(-1, 2).max(axis=1)

        def backward(dy: Array, x: Array) -> Array:
            pairs = x.reshape(-1, 2)
            first = pairs[:, 0] >= pairs[:, 1]
            return np.stack([dy * first, dy * ~first], axis=1).reshape(x.shape)

        result = demand(INCONCLUSIVE, pool, backward, np.array([1.0, 1.0, 2.0, 3.0]))
        assert "Choose inputs without ties" in str(result)
        assert "method=" not in str(result)

    @pytest.mark.parametrize(
        "forward",
        [
            lambda x: np.tanh(x.astype(np.float32)),
            lambda x: np.tanh(x.astype(np.float32).astype(np.float64)),
        ],
        ids=["to float32", "and back"],
    )
    def test_a_cast_is_not_called_a_kink(self, forward: Any) -> None:
        result = demand(INCONCLUSIVE, forward, tanh_backward, np.array([0.5, 0.3, -1.0]))
        assert "as if it rounded to fewer digits" in str(result)
        assert "kink" not in str(result)

    @pytest.mark.parametrize("function", [np.floor, np.ceil, np.trunc, np.rint, np.round, np.sign])
    def test_steps_have_a_derivative_of_zero(self, function: Any) -> None:
        pytest.importorskip("flint")
        x = np.array([0.4, 2.3, -1.2, 1e5 + 0.25])
        demand(PASS, function, lambda dy, _: 0 * dy, x)
        demand(FAIL, function, lambda dy, _: dy, x)

    @pytest.mark.parametrize("function", [np.floor, np.ceil, np.trunc, np.rint])
    def test_at_a_step_there_is_none(self, function: Any) -> None:
        x = np.array([0.3, 2.5 if function is np.rint else 2.0])
        result = demand(INCONCLUSIVE, function, lambda dy, _: 0 * dy, x)
        assert "Choose inputs without ties" in str(result) or "flat" in str(result)

    def test_a_forward_that_is_not_deterministic(self, method: str) -> None:
        random = np.random.default_rng(0)

        def dropout(x: Array) -> Array:
            return x * (random.random(x.shape) < 0.5)

        result = demand(INCONCLUSIVE, dropout, lambda dy, _: dy, np.ones(6), method=method)
        assert "forward is not deterministic: two calls with the same inputs" in str(result)
        assert "forward is not deterministic" in repr(result)

    @pytest.mark.parametrize(
        ("method", "advice"),
        [("central", "Pass method='auto'"), ("auto", "Every method was tried")],
    )
    def test_advice(self, method: str, advice: str) -> None:
        def coarse(x: Array) -> Any:
            return np.round(np.tanh(x.astype(np.float64)), 5)

        result = demand(INCONCLUSIVE, coarse, tanh_backward, np.array([0.3]), method=method)
        assert advice in str(result)
