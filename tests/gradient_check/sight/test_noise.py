"""The noise of a function, and the points it is looked for at."""

from typing import Any

import numpy as np
import pytest

from gradient_check.pairs import data
from truenorm.gradient_check.noise import CLOSE, LINES, Neighbours, least_step, noise_of, spread_of


class TestNoise:
    @pytest.mark.parametrize("size", [1e-12, 1e-3, 1e6, 1e200])
    def test_of_noise_of_a_known_size(self, size: float) -> None:
        """Never too small by much; the margin is for what a dozen values cannot tell."""
        for seed in range(20):
            draw = np.random.default_rng(seed).standard_normal
            found = noise_of(lambda *_, draw=draw: size * draw())
            assert size / 2 <= found <= 50 * size

    def test_beneath_a_smooth_function(self) -> None:
        random = np.random.default_rng(0)
        found = noise_of(lambda _, k: np.exp(k / 1000) + 1e-9 * random.standard_normal())
        assert 5e-10 <= found <= 5e-8

    @pytest.mark.parametrize("function", [np.sin, np.exp, lambda t: 1 / (2 + t), lambda t: t**5])
    def test_of_smooth_functions(self, function: Any) -> None:
        assert noise_of(lambda _, k: float(function(k / 1000))) <= 1e-13

    def test_on_one_line_of_several(self) -> None:
        """On the others all errors may happen to be the same."""
        random = np.random.default_rng(0)
        found = noise_of(lambda line, _: random.standard_normal() if line == 1 else 1.0)
        assert 0.5 <= found <= 50

    def test_of_what_is_not_a_number(self) -> None:
        assert not noise_of(lambda _, k: np.nan if k == 3 else 1.0) <= 1e300


class TestSteps:
    @pytest.mark.parametrize(
        ("x", "spread"),
        [
            (np.array([-1.0, 1.0]), 1),
            (np.array([-1.0, 1.0]) + 2.0**40, 1),
            (np.full(3, -5.0), 5),
            (np.zeros(3), 1),
            (np.zeros(()), 1),
            (np.array([1.2e308, 1.5e308, 1.5e308]), 0.4e308 / 3),
            (np.array([6e4, -6e4, -6e4], np.float16), 16e4 / 3),
        ],
        ids=["size", "spread, not size", "constant", "zeros", "no axes", "large", "narrow"],
    )
    def test_spread(self, x: Any, spread: float) -> None:
        assert spread_of(x) == pytest.approx(spread, rel=1e-12)

    def test_the_least_step_at_zero(self) -> None:
        """Not the smallest of all numbers, which no function would notice."""
        assert least_step(np.zeros(2)) == 2.0**-52

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_the_least_step_is_taken_exactly(self, dtype: Any) -> None:
        for x in (np.array([3.7, -1e5], dtype), np.zeros(2, dtype), np.full(2, 1e-30, dtype)):
            step = x.dtype.type(least_step(x))
            assert step > 0
            assert ((x + step) - x == step).all()


class TestNeighbours:
    INPUTS = (data((3, 4))[0], 1e8 + 1e-3 * data((16,))[0], np.zeros((0, 2)), np.array(2.5))

    @pytest.mark.parametrize("line", range(LINES))
    def test_lie_on_a_straight_line_close_by(self, line: int) -> None:
        neighbours = Neighbours(self.INPUTS, CLOSE)
        lines = [neighbours.at(line, k, self.INPUTS) for k in range(4)]
        for start, *points in zip(self.INPUTS, *lines, strict=True):
            unit = points[1] - start
            assert (unit != 0).all()
            if start.size:
                assert np.abs(unit).max() <= 2.0**-9 * spread_of(start)
            for k, point in enumerate(points):
                np.testing.assert_array_equal(point, start + k * unit)

    def test_lines_differ(self) -> None:
        neighbours = Neighbours(self.INPUTS, CLOSE)
        first, second = (neighbours.at(line, 1, self.INPUTS)[0] for line in (0, 1))
        assert (first != second).any()

    def test_complex_points_keep_their_imaginary_part(self) -> None:
        moved = Neighbours(self.INPUTS, CLOSE).at(1, 2, [x + 1e-30j for x in self.INPUTS])
        for point in moved:
            assert (point.imag == 1e-30).all()
