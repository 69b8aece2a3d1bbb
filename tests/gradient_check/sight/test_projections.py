"""How often a projection misses what is wrong: stated in `projection`, and measured here."""

import numpy as np
import pytest

from gradient_check.checking import FAIL, demand
from gradient_check.pairs import Array
from truenorm.gradient_check.problem import projection


def cube_backward(dy: Array, x: Array) -> Array:
    return np.asarray(3 * dy * x**2)


@pytest.mark.parametrize("method", ["jet", "complex"], indirect=True)
def test_two_gradients_swapped(method: str) -> None:
    """Their errors are opposite: with signs as weights, every other projection missed them."""

    def swapped(dy: Array, x: Array) -> Array:
        dx = cube_backward(dy, x)
        dx[[0, 31]] = dx[[31, 0]]
        return dx

    x = np.random.default_rng(0).standard_normal(1000 if method == "complex" else 100)
    for seed in range(24):
        demand(FAIL, lambda x: x**3, swapped, x, method=method, probes=1, seed=seed)


@pytest.mark.parametrize("bits", [3, 10, 30])
@pytest.mark.parametrize("times", [2.0, 10.0, 100.0])
@pytest.mark.parametrize(
    "error",
    [[1.0], [1.0, -1.0], [1.0, 1.0], [1.0, -0.5, -0.5], [1.0, *[-0.1] * 10]],
    ids=["alone", "opposite", "equal", "balanced", "spread"],
)
def test_the_rate_is_what_is_stated(error: list[float], times: float, bits: int) -> None:
    """An error of so many times t, in the largest element, passes as |<e, v>| <= t."""
    random = np.random.default_rng(1)
    draws = 20_000
    weights = projection(0, (draws, len(error)), bits, random).step
    missed = np.count_nonzero(np.abs(weights @ (times * np.array(error))) <= 1.0) / draws
    bound = 0.0 if len(error) == 1 else 1 / times + 2.0 ** (-bits - 1)
    # Four standard deviations of a count with that probability.
    assert missed <= bound + 4 * np.sqrt(bound / draws)


def test_weights_are_multiples_of_their_grain_between_one_and_two() -> None:
    for bits in (3, 30):
        drawn = projection(0, (1000,), bits, np.random.default_rng(0))
        assert ((np.abs(drawn.step) >= 1) & (np.abs(drawn.step) < 2)).all()
        assert (np.rint(drawn.step / drawn.grain) == drawn.step / drawn.grain).all()
        assert drawn.grain == 2.0**-bits
        assert (drawn.step < 0).any()
        assert (drawn.step > 0).any()


def test_one_wrong_element_of_many_is_never_missed() -> None:
    """By ten times the tolerance, whatever the element and the seed."""
    x = np.random.default_rng(0).standard_normal(600)
    for seed in range(30):

        def wrong(dy: Array, x: Array, at: int = 7 * seed) -> Array:
            dx = cube_backward(dy, x)
            dx[at] += 10 * 1e-12 * np.linalg.norm(dx)
            return dx

        demand(FAIL, lambda x: x**3, wrong, x, method="complex", probes=1, seed=seed)
