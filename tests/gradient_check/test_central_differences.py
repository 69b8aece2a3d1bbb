"""The step, and what it must survive."""

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.central_differences import central_difference, first_step

U = 2.0**-53


def derivative_at(x: float, step: float) -> float:
    def cube(values: NDArray[np.floating]) -> NDArray[np.floating]:
        return values**3

    return central_difference(cube, [np.array([x])], 0, (0,), step, np.ones(1))


def test_step_follows_the_spread_not_the_size() -> None:
    spread = np.array([-1.0, 1.0])
    assert first_step(spread) == first_step(spread + 2.0**40) == U**0.2


def test_step_of_constant_and_of_zero_input() -> None:
    assert first_step(np.full(3, 5.0)) == 5 * U**0.2
    assert first_step(np.zeros(3)) == U**0.2


def test_extrapolation_is_exact_on_a_cubic() -> None:
    """Only rounding is left: u*|f|/h."""
    assert abs(derivative_at(1.0, 2.0**-10) - 3.0) <= 16 * U / 2.0**-10


def test_a_step_below_the_resolution_is_widened() -> None:
    """1e8 + 1e-12 is 1e8: the difference would be 0/h."""
    assert abs(derivative_at(1e8, 1e-12) / 3e16 - 1) <= 0.5


def test_a_step_beyond_the_function_is_narrowed() -> None:
    """Tanh at 0 over a step of 1000 has slope 1/1000; the derivative is 1."""
    found = central_difference(np.tanh, [np.zeros(1)], 0, (0,), 1000.0, np.ones(1))
    assert abs(found - 1) <= 1e-9
