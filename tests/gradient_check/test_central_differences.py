"""Differences with a floor that is honest, for steps and rows of any size."""

import math

import numpy as np
import pytest

import truenorm as tn
from gradient_check.pairs import PAIRS, Array, data
from truenorm.gradient_check import Verdict

LAYER_NORM = PAIRS["layer norm"]


@pytest.mark.parametrize(
    "point",
    [
        0.0,
        1e-3,
        1.0,
        30.0,
        1e8,
    ],
)
def test_sees_a_derivative_within_its_floor(point: float) -> None:
    """The derivative of the sine is the cosine: no backward, but the truth."""
    result = tn.gradcheck(
        np.sin, lambda dy, x: (dy * np.cos(x),), [np.array([point])], method="central"
    )
    assert result.verdict is not Verdict.FAIL, str(result)
    if point <= 30:
        assert result.verdict is Verdict.PASS, str(result)


@pytest.mark.parametrize(
    "scale",
    [
        1e-200,
        1e-30,
        1e-3,
        1e6,
        1e200,
    ],
)
def test_data_of_any_scale(scale: float) -> None:
    def forward(x: Array) -> Array:
        return np.tanh(x / scale)

    def backward(dy: Array, x: Array) -> tuple[Array]:
        return (dy * (1 - forward(x) ** 2) / scale,)

    result = tn.gradcheck(forward, backward, [scale * data((6,))[0]], method="central")
    assert result, str(result)


@pytest.mark.parametrize(
    "row_scales",
    [[1e-3, 1e3], [1.0, 0.0, 1.0], [1.0, 1e4, 1e-2]],
    ids=["small among large", "a zero row", "mixed"],
)
def test_rows_of_different_scale(row_scales: list[float]) -> None:
    """One step cannot serve all rows; a right gradient must pass all the same."""
    x, gamma, beta = data((len(row_scales), 6), (6,), (6,))
    inputs = [x * np.array(row_scales)[:, None], gamma, beta]
    result = tn.gradcheck(LAYER_NORM.forward, LAYER_NORM.backward, inputs, method="central")
    assert result, str(result)


def test_a_first_step_beyond_the_function() -> None:
    """Tanh at 0 over a step of 250 has slope 1/250; the derivative is 1."""
    x = np.array([0.0, 1000.0])
    result = tn.gradcheck(
        np.tanh, lambda dy, x: (dy * (1 - np.tanh(x) ** 2),), [x], method="central"
    )
    assert result, str(result)


def test_a_step_at_the_resolution_of_the_data() -> None:
    """1e8 + 1e-12 is 1e8: the difference would be 0/h."""
    x = 1e8 + 1e-7 * np.arange(4.0)
    result = tn.gradcheck(lambda x: x**3, lambda dy, x: (3 * dy * x**2,), [x], method="central")
    assert result.verdict is not Verdict.FAIL, str(result)
    wrong = tn.gradcheck(lambda x: x**3, lambda dy, x: (0 * dy * x,), [x], method="central")
    assert wrong.verdict is not Verdict.PASS, str(wrong)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_domain_that_ends_near_the_point() -> None:
    """The logarithm has no values a first step away, but closer it has."""
    x = np.array([1e-3, 1.0, 5.0])
    result = tn.gradcheck(np.log, lambda dy, x: (dy / x,), [x], method="central")
    assert result.verdict is not Verdict.FAIL, str(result)
    wrong = tn.gradcheck(np.log, lambda dy, x: (dy / x**2,), [x], method="central")
    assert wrong.verdict is not Verdict.PASS, str(wrong)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_two_outputs_that_overflow() -> None:
    def forward(x: Array) -> tuple[Array, Array]:
        return 0.1 * np.exp(x), -0.1 * np.exp(x)

    def backward(dys: tuple[Array, Array], x: Array) -> tuple[Array]:
        return (0.1 * (dys[0] - dys[1]) * np.exp(x),)

    x = np.array([709.5, -1e4])
    result = tn.gradcheck(forward, backward, [x], method="central")
    assert result.verdict is not Verdict.FAIL, str(result)


def test_large_numbers() -> None:
    x = np.array([1e308, 1.5e308, 1.7e308])
    result = tn.gradcheck(lambda x: x / 4, lambda dy, _: (dy / 4,), [x], method="central")
    assert result.verdict is not Verdict.FAIL, str(result)


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
