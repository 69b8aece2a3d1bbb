"""Pairs that a tester found false verdicts on: saturated, steep, stepped, small beside large."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradient_check.checking import FAIL, INCONCLUSIVE, PASS, demand, forbid
from gradient_check.pairs import Array, softmax, softmax_backward, tanh_backward

Pair = tuple[Callable[..., Any], Callable[..., Any], Any]


def draw(seed: int) -> Callable[[Any], Array]:
    return np.random.default_rng(seed).standard_normal


def sine(factor: float, x: Array) -> Pair:
    return lambda x: np.sin(factor * x), lambda dy, x: dy * factor * np.cos(factor * x), x


def rows_of_shares(seed: int) -> Pair:
    """Shares of a whole add up to 1, whatever the row: the derivative of their sum is zero."""
    x = np.abs(draw(seed)((4, 3))) * np.array([[1e3], [1.0], [1e-3], [1e-6]])

    def backward(dy: Array, x: Array) -> Array:
        total = x.sum(axis=-1, keepdims=True)
        dshares = dy[:, None] * np.ones_like(x)
        return np.asarray(dshares / total - (x * dshares).sum(axis=-1, keepdims=True) / total**2)

    return lambda x: (x / x.sum(axis=-1, keepdims=True)).sum(axis=-1), backward, x


def shifted_sine(factor: float, seed: int) -> Pair:
    """At zeros, rounding errors come from a constant."""
    shift = np.random.default_rng(seed).random()
    return (
        lambda x: np.sin(factor * (x + shift)),
        lambda dy, x: dy * factor * np.cos(factor * (x + shift)),
        np.zeros(4),
    )


RIGHT: dict[str, Callable[[int], Pair]] = {
    **{
        f"softmax of {scale} N": lambda seed, scale=scale: (  # type: ignore[misc]
            softmax,
            softmax_backward,
            scale * draw(seed)((3, 8)),
        )
        for scale in (10, 30, 100, 1000)
    },
    "softmax with one large": lambda _: (softmax, softmax_backward, np.array([[0.5, 40.7, 1.1]])),
    "saturated tanh": lambda seed: (
        np.tanh,
        tanh_backward,
        np.random.default_rng(seed).uniform(8, 20, 6),
    ),
    "tanh of 10 N": lambda seed: (np.tanh, tanh_backward, 10 * draw(seed)(20)),
    "sine beside an offset": lambda seed: sine(1e3, 1e4 + 0.01 * draw(seed)(4)),
    "steep sine": lambda seed: sine(1e8, draw(seed)(5)),
    "steeper sine": lambda seed: sine(1e10, draw(seed)(5)),
    "sine at zeros": lambda seed: shifted_sine(10.0 ** (3 + seed), seed),
    "a derivative of zero": rows_of_shares,
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", RIGHT)
def test_right_pairs_do_not_fail(name: str, seed: int) -> None:
    pytest.importorskip("flint")
    pair = RIGHT[name](seed)
    forbid(FAIL, *pair)
    forbid(FAIL, *pair, method="central")


def small_beside(amplitude: float, factor: float) -> Pair:
    """Return a pair with a small element whose gradient has the wrong sign."""
    return (
        lambda x: np.stack([x[0], amplitude * np.sin(factor * x[1])]),
        lambda dy, x: np.stack([dy[0], -dy[1] * amplitude * factor * np.cos(factor * x[1])]),
        np.array([1.3, 0.7]),
    )


def small_kink(at: float, x: float) -> Pair:
    """Return a pair with a small element at or near a kink, and three times its slope."""
    return (
        lambda x: np.stack([x[0], 1e-7 * np.maximum(x[1] - at, 0)]),
        lambda dy, x: np.stack([dy[0], 3e-7 * dy[1] * (x[1] >= at)]),
        np.array([1.3, x]),
    )


def fine_structure() -> Pair:
    return (
        lambda x: np.stack([x[0] + 1e-8 * np.tanh(x[0] * 1e8), x[1]]),
        lambda dy, _: dy,
        np.array([1e-8, 1e8]),
    )


WRONG: dict[str, Pair] = {
    "a wiggle of 1e-12": (
        lambda x: x + 1e-12 * np.sin(1e8 * x),
        lambda dy, _: dy,
        np.array([1.3, 0.7, -0.4]),
    ),
    "structure of a small element": fine_structure(),
    "sign of a small element": small_beside(1e-12, 1e5),
    "sign of a tiny element": small_beside(1e-20, 1e5),
    "a small kink": small_kink(0.0, 0.0),
    "near a small kink": small_kink(0.7, 0.7001),
}


@pytest.mark.parametrize("method", ["auto", "central"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_pairs_do_not_pass(name: str, method: str) -> None:
    forbid(PASS, *WRONG[name], method=method)


class TestNone:
    def test_a_forward_that_reuses_its_output(self) -> None:
        buffer = np.empty(3)

        def forward(x: Array, weight: Array) -> Array:
            np.multiply(x, weight, out=buffer)
            return buffer

        inputs = [np.array([1.0, 2.0, 3.0])] * 2
        demand(FAIL, forward, lambda dy, _, weight: (dy * weight, None), inputs)

    def test_an_input_that_counts_nearby_alone(self) -> None:
        def forward(x: Array, shift: Array) -> Array:
            return x + np.where(np.abs(shift) < 1e-3, shift, 0 * shift)

        forbid(PASS, forward, lambda dy, *_: (dy, None), [np.ones(2), np.zeros(2)])

    def test_a_forward_that_raises_where_the_input_is_moved_to(self) -> None:
        def forward(x: Array, eps: Array) -> Array:
            if np.any(eps < 0):
                raise ValueError("eps is negative")
            return np.asarray(x * (1 + eps))

        inputs = [np.ones(2), np.array([1e-5])]
        forbid(PASS, forward, lambda dy, _, eps: (dy * (1 + eps), None), inputs)


def test_a_forward_that_raises_outside_of_its_domain() -> None:
    def forward(x: Array) -> Array:
        return np.array([math.log(value) for value in x])

    demand(PASS, forward, lambda dy, x: dy / x, np.array([0.01, 5.0]))


def test_a_complex_step_is_short_beside_small_elements() -> None:
    x = np.array([1e-300, 1e-8, 0.3, 2.0])
    forbid(FAIL, lambda x: x * np.log(x), lambda dy, x: dy * (np.log(x) + 1), x, method="complex")


def test_jets_are_refused_for_large_inputs() -> None:
    pytest.importorskip("flint")
    x = np.ones(2**17 + 1)
    result = demand(PASS, lambda x: x * x, lambda dy, x: 2 * dy * x, x)
    assert result.method == "complex"
    assert "inputs have 131073 elements" in result.why


@pytest.mark.filterwarnings("error")
def test_no_warning_reaches_the_caller() -> None:
    def cast(x: Array) -> Array:
        y = np.empty(x.shape)
        y[:] = x**2
        return y

    demand(PASS, cast, lambda dy, x: 2 * dy * x, np.array([0.5, -1.5]))
    result = demand(INCONCLUSIVE, np.sqrt, lambda dy, x: dy / 2 + 0 * x, np.array([0.0]))
    assert "not deterministic" not in str(result)
