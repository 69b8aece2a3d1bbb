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
@pytest.mark.slow
def test_a_mean_loss_has_an_answer_without_jets() -> None:
    """A share of 1/80 is too small beside the loss for a complex step at 1e-12."""
    x = np.random.default_rng(0).standard_normal((ROWS, 10))
    result = demand(PASS, cross_entropy, cross_entropy_backward, x)
    assert result.method == "central"
    assert "not complex, which was inconclusive" in result.why
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
