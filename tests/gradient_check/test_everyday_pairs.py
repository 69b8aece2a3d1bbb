"""Pairs as people write them, at points that are hard for one method or another."""

import sys
from typing import Any, Literal

import numpy as np
import pytest

import truenorm as tn
from gradient_check.pairs import PAIRS, Array, layer_norm
from truenorm.gradient_check import Verdict

MethodName = Literal["auto", "jet", "complex", "central"]
LABELS = np.arange(16) % 10


def cross_entropy(x: Array) -> Any:
    top = x.max(axis=-1, keepdims=True)
    sums = np.exp(x - top).sum(axis=-1)
    return (np.log(sums) + top[:, 0] - x[np.arange(16), LABELS]).mean()


def cross_entropy_backward(dy: Array, x: Array) -> Array:
    shares = np.exp(x - x.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    shares[np.arange(16), LABELS] -= 1
    return np.asarray(dy * shares / 16)


def steep(x: Array) -> Any:
    return np.tanh(300 * (x - 1))


def steep_backward(dy: Array, x: Array) -> Array:
    return np.asarray(300 * dy / np.cosh(300 * (x - 1)) ** 2)


def test_a_mean_loss_has_an_answer_without_jets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of 1/160 is too small beside the loss for a complex step at 1e-12."""
    monkeypatch.setitem(sys.modules, "flint", None)
    x = np.random.default_rng(0).standard_normal((16, 10))
    result = tn.gradcheck(cross_entropy, cross_entropy_backward, x)
    assert result, str(result)
    assert result.method == "central"
    assert "not complex, which was inconclusive" in result.why
    wrong = tn.gradcheck(cross_entropy, lambda dy, x: 16 * cross_entropy_backward(dy, x), x)
    assert wrong.verdict is Verdict.FAIL


def test_the_first_that_was_inconclusive_is_returned_if_all_are() -> None:
    pytest.importorskip("flint")
    result = tn.gradcheck(np.tanh, lambda dy, x: 0 * dy * x, np.array([40.0]))
    assert (result.verdict, result.method) == (Verdict.INCONCLUSIVE, "jet")


@pytest.mark.parametrize("method", ["complex", "central"])
class TestSteep:
    """Where a function moves over a small part of the spread, its curvature is no noise."""

    def test_a_steep_function(self, method: MethodName) -> None:
        result = tn.gradcheck(steep, steep_backward, np.ones(3), method=method)
        assert result.verdict is not Verdict.FAIL, str(result)

    def test_a_constant_row(self, method: MethodName) -> None:
        x = np.random.default_rng(0).standard_normal((3, 8))
        x[1] = 0.7
        backward = PAIRS["layer norm"].backward
        for rows in (x, np.ones((3, 8))):
            result = tn.gradcheck(
                layer_norm, backward, [rows, np.ones(8), np.zeros(8)], method=method
            )
            assert result.verdict is not Verdict.FAIL, str(result)


def test_digits_lost_beside_larger_elements_are_no_error(method: MethodName) -> None:
    """1 - tanh(8)**2 has seven digits less than 1, of which the check is told."""
    x = np.array([0.5, 8.0])
    assert tn.gradcheck(np.tanh, lambda dy, x: dy * (1 - np.tanh(x) ** 2), x, method=method)


def test_a_derivative_of_zero(method: MethodName) -> None:
    result = tn.gradcheck(lambda x: x**3, lambda dy, x: 3 * dy * x * x, np.zeros(1), method=method)
    assert result.verdict is not Verdict.FAIL, str(result)


def test_a_gradient_that_is_zero_but_for_rounding(method: MethodName) -> None:
    """A softmax does not change with a shift."""
    x = np.random.default_rng(0).standard_normal(5)

    def forward(shift: Array) -> Any:
        powers = np.exp((x + shift) - (x + shift).max())
        return powers / powers.sum()

    result = tn.gradcheck(forward, lambda dy, _: 1e-17 * dy[:1], np.array([0.3]), method=method)
    assert result.verdict is not Verdict.FAIL, str(result)


def test_a_gradient_far_too_small_in_a_projection(method: MethodName) -> None:
    x = np.random.default_rng(0).standard_normal(600)
    result = tn.gradcheck(lambda x: x * x, lambda dy, x: 2e-20 * dy * x, x, method=method)
    assert result.verdict is Verdict.FAIL, str(result)


def test_subnormal_inputs() -> None:
    x = np.array([5e-324, 0.0])
    result = tn.gradcheck(lambda x: 2 * x, lambda dy, _: 2 * dy, x, method="central")
    assert result.verdict is not Verdict.FAIL, str(result)
