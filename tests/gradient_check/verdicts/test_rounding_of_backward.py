"""Right formulas that lose digits pass; what is wrong beyond their rounding errors fails."""

from typing import Any

import numpy as np
import pytest

import truenorm as tn
from gradient_check.checking import FAIL, PASS, demand, forbid
from gradient_check.pairs import Array, tanh_backward

X = np.random.default_rng(0).standard_normal(8)


def sine(factor: float) -> Any:
    return lambda x: np.sin(factor * x)


def cosine(factor: float, off: float = 0.0) -> Any:
    return lambda dy, x: (1 + off) * dy * factor * np.cos(factor * x)


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    return tn.textbook.forward(x, gamma, beta)[0]


def layer_norm_backward(dy: Array, x: Array, gamma: Array, beta: Array) -> tuple[Array, ...]:
    return tn.textbook.backward(dy, tn.textbook.forward(x, gamma, beta)[1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("factor", [1e3, 1e6])
def test_an_ill_conditioned_sine(factor: float, seed: int, method: str) -> None:
    """factor*x is rounded by up to factor*u, and the cosine of it is off by as much."""
    x = np.random.default_rng(seed).standard_normal(8)
    forbid(FAIL, sine(factor), cosine(factor), x, method=method)
    demand(FAIL, sine(factor), cosine(factor, off=1e-4), x)


def test_says_how_many_digits_agree() -> None:
    pytest.importorskip("flint")
    pair = (sine(1e6), cosine(1e6), X)
    result = demand(PASS, *pair, method="jet")
    assert "agrees to 10 digits, float64 rounding allows 8" in str(result)
    assert 1e-11 < result.error < result.tol < 1e-8
    # A tolerance that the caller asks for is not relaxed.
    demand(FAIL, *pair, method="jet", tol=1e-12)


def test_an_error_above_the_rounding_fails() -> None:
    """1e-8 of the gradient, where rounding errors are bounded by 3e-9."""
    pytest.importorskip("flint")
    demand(FAIL, sine(1e6), cosine(1e6, off=1e-8), X, method="jet")


OFTEN = [
    pytest.param(offset, seed, marks=pytest.mark.slow if seed else ())
    for offset in (1e3, 1e6, 1e8)
    for seed in range(4)
]


@pytest.mark.parametrize(("offset", "seed"), OFTEN)
def test_a_textbook_layer_norm_beside_an_offset(offset: float, seed: int, method: str) -> None:
    draw = np.random.default_rng(seed).standard_normal
    inputs = [offset + draw((2, 6)), draw(6), draw(6)]
    pair = (layer_norm, layer_norm_backward, inputs)
    forbid(FAIL, *pair, method=method)
    if offset <= 1e6:
        demand(PASS, *pair)

    def doubled(*given: Array) -> tuple[Array, ...]:
        dx, dgamma, dbeta = layer_norm_backward(*given)
        return dx, 2 * dgamma, dbeta

    demand(FAIL, layer_norm, doubled, inputs)


@pytest.mark.parametrize("largest", [8.0, 17.0, 19.2, 20.0, 40.0])
def test_digits_lost_beside_a_larger_element(largest: float, method: str) -> None:
    """1 - tanh(x)**2 has no correct digit at 20, where the derivative is 2e-17."""
    x = np.array([0.5, largest])
    forbid(FAIL, np.tanh, tanh_backward, x, method=method)
    demand(PASS, np.tanh, tanh_backward, x)


def test_a_backward_that_is_not_deterministic() -> None:
    random = np.random.default_rng(0)

    def backward(dy: Array, x: Array) -> Array:
        return tanh_backward(dy, x) * (random.random(x.shape) < 0.5)

    result = demand(FAIL, np.tanh, backward, X)
    assert result.inputs[0].why.startswith("backward is not deterministic")
    assert "backward is not deterministic" in str(result)


def test_a_backward_that_uses_what_forward_saved() -> None:
    """Its rounding errors are measured at other inputs, where forward must run first."""
    pytest.importorskip("flint")
    saved = {}

    def forward(x: Array) -> Array:
        saved["x"] = x
        return np.sin(1e6 * x)

    def backward(dy: Array, _: Array) -> Array:
        return dy * 1e6 * np.cos(1e6 * saved["x"])

    demand(PASS, forward, backward, X, method="jet")
