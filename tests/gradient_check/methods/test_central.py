"""Differences with a floor that is honest, for steps and rows of any size."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from gradient_check import checking
from gradient_check.checking import FAIL, PASS
from gradient_check.pairs import PAIRS, Array, data, tanh_backward

LAYER_NORM = PAIRS["layer norm"]
demand = partial(checking.demand, method="central")
forbid = partial(checking.forbid, method="central")


@pytest.mark.parametrize("point", [0.0, 1e-3, 1.0, 30.0, 1e8])
def test_sees_a_derivative_within_its_floor(point: float) -> None:
    """The derivative of the sine is the cosine: no backward, but the truth."""
    pair = (np.sin, lambda dy, x: (dy * np.cos(x),), [np.array([point])])
    forbid(FAIL, *pair)
    if point <= 30:
        demand(PASS, *pair)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e-3, 1e6, 1e200])
def test_data_of_any_scale(scale: float) -> None:
    def backward(dy: Array, x: Array) -> Array:
        return tanh_backward(dy, x / scale) / scale

    demand(PASS, lambda x: np.tanh(x / scale), backward, scale * data((6,))[0])


@pytest.mark.parametrize(
    "row_scales",
    [[1e-3, 1e3], [1.0, 0.0, 1.0], [1.0, 1e4, 1e-2]],
    ids=["small among large", "a zero row", "mixed"],
)
def test_rows_of_different_scale(row_scales: list[float]) -> None:
    """One step cannot serve all rows; a right gradient must pass all the same."""
    x, gamma, beta = data((len(row_scales), 6), (6,), (6,))
    inputs = [x * np.array(row_scales)[:, None], gamma, beta]
    demand(PASS, LAYER_NORM.forward, LAYER_NORM.backward, inputs)


def test_a_first_step_beyond_the_function() -> None:
    """Tanh at 0 over a step of 250 has slope 1/250; the derivative is 1."""
    demand(PASS, np.tanh, tanh_backward, np.array([0.0, 1000.0]))


HARD: dict[str, tuple[Any, Any, Any, Any]] = {
    # 1e8 + 1e-12 is 1e8: the difference would be 0/h.
    "a step at the resolution of the data": (
        lambda x: x**3,
        lambda dy, x: 3 * dy * x**2,
        lambda dy, x: 0 * dy * x,
        1e8 + 1e-7 * np.arange(4.0),
    ),
    # A first step away the logarithm has no values, but closer it has.
    "a domain that ends near the point": (
        np.log,
        lambda dy, x: dy / x,
        lambda dy, x: dy / x**2,
        np.array([1e-3, 1.0, 5.0]),
    ),
    "outputs that overflow": (
        lambda x: (0.1 * np.exp(x), -0.1 * np.exp(x)),
        lambda dys, x: 0.1 * (dys[0] - dys[1]) * np.exp(x),
        None,
        np.array([709.5, -1e4]),
    ),
    "large numbers": (
        lambda x: x / 4,
        lambda dy, _: dy / 4,
        None,
        np.array([1e308, 1.5e308, 1.7e308]),
    ),
    "subnormal numbers": (lambda x: 2 * x, lambda dy, _: 2 * dy, None, np.array([5e-324, 0.0])),
}


@pytest.mark.parametrize("name", HARD)
def test_no_false_verdict(name: str) -> None:
    forward, right, wrong, x = HARD[name]
    forbid(FAIL, forward, right, x)
    if wrong is not None:
        forbid(PASS, forward, wrong, x)


def test_the_floor_covers_the_error() -> None:
    """Over many points: the truth is within the floor, which is what makes it one."""
    for seed in range(3):
        x = data((6,), seed=seed)
        result = tn.gradcheck(
            lambda x: np.exp(np.sin(3 * x)),
            lambda dy, x: (3 * dy * np.exp(np.sin(3 * x)) * np.cos(3 * x),),
            x,
            method="central",
        )
        assert result.error <= result.floor + 1e-14
        assert math.isfinite(result.floor)


class TestScreening:
    """Three steps for most elements; more where they leave doubt."""

    @staticmethod
    def counted(inputs: list[Array], mistake: float = 0.0) -> tuple[tn.GradientCheck, int]:
        calls = 0

        def forward(x: Array, gamma: Array, beta: Array) -> Array:
            nonlocal calls
            calls += 1
            return tn.textbook.forward(x, gamma, beta)[0]

        def backward(dy: Array, x: Array, gamma: Array, beta: Array) -> tuple[Array, ...]:
            dx, *others = tn.textbook.backward(dy, tn.textbook.forward(x, gamma, beta)[1])
            dx[0, 0, 3] *= 1 + mistake
            return dx, *others

        return tn.gradcheck(forward, backward, inputs, method="central"), calls

    def test_takes_few_calls(self) -> None:
        """Without screening it took 270,510: 20 times less is asked for, some 11 an element."""
        for mistake, verdict in ((0.0, PASS), (1e-4, FAIL)):
            result, calls = self.counted(data((4, 8, 16), (16,), (16,)), mistake)
            assert result.verdict is verdict, str(result)
            assert calls <= 270_510 / 20

    def test_where_it_leaves_doubt_more_steps_are_taken(self) -> None:
        """Beside an offset, the noise of forward needs larger steps; all 48 elements pass."""
        x, gamma, beta = data((2, 4, 6), (6,), (6,))
        result, _ = self.counted([1e5 + x, gamma, beta])
        assert result.verdict is PASS, str(result)

    @pytest.mark.parametrize("wiggle", [1e3, 1e5, 1e7], ids=str)
    def test_smaller_steps_contradict(self, wiggle: float) -> None:
        """Far away the wiggle is a small part of x; at the point its slope is that of x."""

        def forward(x: Array) -> Array:
            return x + np.sin(wiggle * x) / wiggle

        demand(FAIL, forward, lambda dy, _: dy, np.array([0.3, 1.0, 2.0]))

    def test_a_kink_nearer_than_the_steps(self) -> None:
        """On both sides of 0 abs changes by as much, which looks like a derivative of 0."""
        for at in (0.0, 1e-13, 1e-7):
            forbid(PASS, np.abs, lambda dy, _: 0 * dy, np.array([at, 1.0, -1.0]))
