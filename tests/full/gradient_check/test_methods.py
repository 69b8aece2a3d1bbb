"""Noise, projections, central differences, complex steps and the jet method."""

import itertools
import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.gradient_check import pairs
from shared.gradient_check.pairs import (
    FAIL,
    INCONCLUSIVE,
    PAIRS,
    PASS,
    Array,
    data,
    demand,
    forbid,
    tanh_backward,
)
from truenorm.gradient_check.noise import (
    CLOSE,
    DISTANCES,
    LINES,
    NearbyLines,
    NoiseEstimator,
    least_step,
    noise_on_lines,
    spread_of,
)
from truenorm.gradient_check.problem import random_direction


class TestNoiseOnLines:
    @pytest.mark.parametrize("size", [1e-12, 1e-3, 1e6, 1e200])
    def test_of_noise_of_a_known_size(self, size: float) -> None:
        """The bound is at least half of the noise, and at most 50 times as large."""
        for seed in range(20):
            draw = np.random.default_rng(seed).standard_normal
            noise = noise_on_lines(lambda *_, draw=draw: size * draw())
            assert size / 2 <= noise <= 50 * size

    @pytest.mark.parametrize("function", [np.sin, np.exp, lambda t: 1 / (2 + t), lambda t: t**5])
    def test_of_smooth_functions(self, function: Any) -> None:
        assert noise_on_lines(lambda _, k: float(function(k / 1000))) <= 1e-13

    def test_on_one_line_of_several(self) -> None:
        """All errors may happen to be the same on the other lines."""
        random = np.random.default_rng(0)
        noise = noise_on_lines(lambda line, _: random.standard_normal() if line == 1 else 1.0)
        assert 0.5 <= noise <= 50

    def test_of_what_is_not_a_number(self) -> None:
        assert not noise_on_lines(lambda _, k: np.nan if k == 3 else 1.0) <= 1e300


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
        """It is not the smallest number, to which no function would react."""
        assert least_step(np.zeros(2)) == 2.0**-52

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_the_least_step_is_taken_exactly(self, dtype: Any) -> None:
        for x in (np.array([3.7, -1e5], dtype), np.zeros(2, dtype), np.full(2, 1e-30, dtype)):
            step = x.dtype.type(least_step(x))
            assert step > 0
            assert ((x + step) - x == step).all()


class TestNearbyLines:
    INPUTS = (data((3, 4))[0], 1e8 + 1e-3 * data((16,))[0], np.zeros((0, 2)), np.array(2.5))

    @pytest.mark.parametrize("line", range(LINES))
    def test_lie_on_a_straight_line_close_by(self, line: int) -> None:
        nearby = NearbyLines(self.INPUTS, CLOSE, move_zeros=False)
        lines = [nearby.point(line, k, self.INPUTS) for k in range(4)]
        for start, *points in zip(self.INPUTS, *lines, strict=True):
            unit = points[1] - start
            assert (unit != 0).all()
            if start.size:
                assert np.abs(unit).max() <= 2.0**-9 * spread_of(start)
            for k, point in enumerate(points):
                np.testing.assert_array_equal(point, start + k * unit)

    def test_lines_differ(self) -> None:
        nearby = NearbyLines(self.INPUTS, CLOSE, move_zeros=False)
        first, second = (nearby.point(line, 1, self.INPUTS)[0] for line in (0, 1))
        assert (first != second).any()

    def test_distances_have_their_own_points(self) -> None:
        """The steps of the second input cannot shrink."""
        moved = [
            NearbyLines(self.INPUTS, distance, move_zeros=False).point(0, 1, self.INPUTS)[1]
            for distance in DISTANCES
        ]
        for first, second in itertools.combinations(moved, 2):
            assert (first != second).any()

    def test_complex_points_keep_their_imaginary_part(self) -> None:
        moved = NearbyLines(self.INPUTS, CLOSE, move_zeros=False).point(
            1, 2, [x + 1e-30j for x in self.INPUTS]
        )
        for point in moved:
            assert (point.imag == 1e-30).all()


class TestNoiseEstimator:
    @pytest.mark.parametrize("units", [1, 2, 4, 8, 12, 16, 24, 64])
    def test_covers_the_rounding_error_of_a_mean(self, units: int) -> None:
        """Nearby points are `units` apart; a unit is two last places of 1e8."""
        for seed in range(5):
            x = data((2, 16), seed=seed)[0]
            x = 1e8 + x * (units * 2 * np.spacing(1e8) / CLOSE / spread_of(x))
            exact = [float(sum(map(Fraction, row)) / 16 - 10**8) for row in x.tolist()]
            error = np.abs(x.mean(axis=-1) - 1e8 - exact)
            bound = NoiseEstimator([x]).noise(
                lambda inputs: inputs[0].mean(axis=-1) - 1e8, [x], 0.0, np.zeros(2)
            )[0]
            assert (error <= bound).all()

    def test_errors_that_are_the_same_at_the_largest_distance(self) -> None:
        random = np.random.default_rng(0)

        def function(inputs: list[Array]) -> float:
            x = float(inputs[0])
            is_near = 0 < abs(x - 1) < CLOSE / 4
            return x + 1e-9 * random.standard_normal() * is_near

        x = [np.array(1.0)]
        assert NoiseEstimator(x).noise(function, x, 0.0, 1e-6).coarse <= 1e-14
        assert 5e-10 <= NoiseEstimator(x).noise(function, x, 0.0, 1e-6).bound <= 5e-8


def cube_backward(dy: Array, x: Array) -> Array:
    return np.asarray(3 * dy * x**2)


@pytest.mark.parametrize("method", ["jet", "complex"], indirect=True)
def test_two_gradients_swapped(method: str) -> None:
    """The errors are opposite: with signs as weights, every other projection misses them."""

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
def test_rate_of_missed_errors(error: list[float], times: float, bits: int) -> None:
    """An error of `times` t in the largest element is missed if |<e, v>| <= t."""
    random = np.random.default_rng(1)
    draws = 20_000
    weights = random_direction(0, (draws, len(error)), bits, random).step
    missed = np.count_nonzero(np.abs(weights @ (times * np.array(error))) <= 1.0) / draws
    bound = 0.0 if len(error) == 1 else 1 / times + 2.0 ** (-bits - 1)
    # Four standard deviations of a count with that probability.
    assert missed <= bound + 4 * np.sqrt(bound / draws)


def test_one_wrong_element_of_many_is_never_missed() -> None:
    """The error is ten times the tolerance, for any element and seed."""
    x = np.random.default_rng(0).standard_normal(600)
    for seed in range(30):

        def wrong(dy: Array, x: Array, at: int = 7 * seed) -> Array:
            dx = cube_backward(dy, x)
            dx[at] += 10 * 1e-12 * np.linalg.norm(dx)
            return dx

        demand(FAIL, lambda x: x**3, wrong, x, method="complex", probes=1, seed=seed)


LAYER_NORM = PAIRS["layer norm"]


def textbook_backward(dy: Array, x: Array, gamma: Array, beta: Array) -> tuple[Array, ...]:
    return tn.textbook.backward(dy, tn.textbook.forward(x, gamma, beta)[1])


demand_central = partial(pairs.demand, method="central")
forbid_central = partial(pairs.forbid, method="central")


@pytest.mark.parametrize("point", [0.0, 1e-3, 1.0, 30.0, 1e8])
def test_derivative_is_within_the_floor(point: float) -> None:
    """The derivative of the sine is the cosine."""
    pair = (np.sin, lambda dy, x: (dy * np.cos(x),), [np.array([point])])
    forbid_central(FAIL, *pair)
    if point <= 30:
        demand_central(PASS, *pair)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e-3, 1e6, 1e200])
def test_data_of_any_scale(scale: float) -> None:
    def backward(dy: Array, x: Array) -> Array:
        return tanh_backward(dy, x / scale) / scale

    demand_central(PASS, lambda x: np.tanh(x / scale), backward, scale * data((6,))[0])


@pytest.mark.parametrize(
    "row_scales",
    [[1e-3, 1e3], [1.0, 0.0, 1.0], [1.0, 1e4, 1e-2]],
    ids=["small among large", "a zero row", "mixed"],
)
def test_rows_of_different_scale(row_scales: list[float]) -> None:
    """No single step suits all rows, but a right gradient must pass."""
    x, gamma, beta = data((len(row_scales), 6), (6,), (6,))
    inputs = [x * np.array(row_scales)[:, None], gamma, beta]
    demand_central(PASS, LAYER_NORM.forward, LAYER_NORM.backward, inputs)


def test_first_step_beyond_the_function() -> None:
    """With a step of 250, tanh at 0 has slope 1/250; the derivative is 1."""
    demand_central(PASS, np.tanh, tanh_backward, np.array([0.0, 1000.0]))


HARD_POINTS: dict[str, tuple[Any, Any, Any, Any]] = {
    # 1e8 + 1e-12 is 1e8: the difference would be 0/h.
    "a step at the resolution of the data":
        (lambda x: x**3, lambda dy, x: 3 * dy * x**2, lambda dy, x: 0 * dy * x,
        1e8 + 1e-7 * np.arange(4.0)),
    # A first step away the logarithm has no values, but closer it has.
    "a domain that ends near the point":
        (np.log, lambda dy, x: dy / x, lambda dy, x: dy / x**2, np.array([1e-3, 1.0, 5.0])),
    "outputs that overflow":
        (lambda x: (0.1 * np.exp(x), -0.1 * np.exp(x)), lambda dys,
        x: 0.1 * (dys[0] - dys[1]) * np.exp(x), None, np.array([709.5, -1e4])),
    "large numbers": (lambda x: x / 4, lambda dy, _: dy / 4, None,
        np.array([1e308, 1.5e308, 1.7e308])),
    "subnormal numbers": (lambda x: 2 * x, lambda dy, _: 2 * dy, None, np.array([5e-324, 0.0])),
}  # fmt: skip


@pytest.mark.parametrize("name", HARD_POINTS)
def test_hard_points(name: str) -> None:
    forward, right, wrong, x = HARD_POINTS[name]
    forbid_central(FAIL, forward, right, x)
    if wrong is not None:
        forbid_central(PASS, forward, wrong, x)


def test_floor_covers_the_error() -> None:
    """The exact derivative is within the floor at many points."""
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


class TestOneOfManyElements:
    """Up to 96 elements are checked one by one."""

    X = np.random.default_rng(0).standard_normal(90)

    @pytest.mark.parametrize("times", [2.0, 1e3])
    @pytest.mark.parametrize("where", [0, 23, 89])
    def test_one_wrong_element_is_located(self, where: int, times: float) -> None:
        def backward(dy: Array, x: Array) -> Array:
            dx = 2 * dy * x
            dx[where] *= 1 + times * 1e-12
            return np.asarray(dx)

        result = demand(FAIL, np.square, backward, self.X, method="complex")
        assert result.worst == (where,)

    @pytest.mark.parametrize("part", [1e-11, 3e-10])
    def test_part_of_one_element_that_is_not_analytic(self, part: float) -> None:
        weight = part * (np.arange(90) == 77)
        pair = (lambda x: x**2 + weight * np.abs(x), lambda dy, x: 2 * dy * x, self.X)
        forbid(PASS, *pair, method="complex")

    def test_kink_of_one_element(self) -> None:
        x = np.where(np.arange(90) == 5, 0.0, np.abs(self.X) + 0.1)

        def forward(x: Array) -> Any:
            return 1000 + np.where(x.real > 0, x, 0.5 * x)

        result = demand(INCONCLUSIVE, forward, lambda dy, _: dy, x, method="complex")
        assert result.worst == (5,)


class TestManyElements:
    """Jets of many elements take long, so that a complex step is tried first."""

    X = np.random.default_rng(0).standard_normal(9000)

    def test_complex_step_passes(self) -> None:
        result = demand(PASS, np.square, lambda dy, x: 2 * dy * x, self.X)
        assert (result.method, "not jet" in result.why) == ("complex", True)

    def test_jets_decide_on_one_wrong_element(self) -> None:
        pytest.importorskip("flint")

        def backward(dy: Array, x: Array) -> Array:
            dx = 2 * dy * x
            dx[4321] += 1e-9
            return np.asarray(dx)

        assert demand(FAIL, np.square, backward, self.X).method == "jet"

    def test_jets_decide_where_forward_is_not_analytic(self) -> None:
        pytest.importorskip("flint")
        result = demand(PASS, np.abs, lambda dy, x: dy * np.sign(x), self.X)
        assert result.method == "jet"


class TestSmallerSteps:
    """Smaller steps can contradict larger ones."""

    def test_an_offset(self) -> None:
        """The noise of forward needs larger steps; all 48 elements pass."""
        x, gamma, beta = data((2, 4, 6), (6,), (6,))
        demand_central(PASS, LAYER_NORM.forward, textbook_backward, [1e5 + x, gamma, beta])

    @pytest.mark.parametrize("wiggle", [1e3, 1e5, 1e7], ids=str)
    def test_smaller_steps_contradict(self, wiggle: float) -> None:
        """The wiggle is small compared with x, but its slope is not."""

        def forward(x: Array) -> Array:
            return x + np.sin(wiggle * x) / wiggle

        demand_central(FAIL, forward, lambda dy, _: dy, np.array([0.3, 1.0, 2.0]))

    def test_kink_nearer_than_the_steps(self) -> None:
        """The central difference of abs at 0 is 0."""
        for at in (0.0, 1e-13, 1e-7):
            forbid_central(PASS, np.abs, lambda dy, _: 0 * dy, np.array([at, 1.0, -1.0]))


flint = pytest.importorskip("flint")
demand_jet = partial(pairs.demand, method="jet")
forbid_jet = partial(pairs.forbid, method="jet")


def cancelling(x: Array) -> Array:
    """Compute (x/3)**2 in a way that loses 100 bits."""
    return ((x / 3 + 2.0**100) - 2.0**100) ** 2


def square_backward(dy: Array, x: Array) -> Array:
    return 2 * dy * x / 9


def test_jets_take_more_bits_if_needed() -> None:
    assert demand_jet(PASS, cancelling, square_backward, data((3,))).floor <= 2.0**-60


def test_jets_preserve_the_precision_of_the_caller() -> None:
    def failing(x: Array) -> Array:
        if flint.ctx.prec > 128:
            raise ArithmeticError
        return cancelling(x)

    with flint.ctx.workprec(77):
        with pytest.raises(ArithmeticError):
            tn.gradcheck(failing, square_backward, data((3,)), method="jet")
        assert flint.ctx.prec == 77


def test_jets_refuse_a_kink() -> None:
    """Any slope from 0 to 1 is a subgradient of relu at 0."""
    x = np.array([-1.0, 0.0, 2.0])
    with pytest.raises(ValueError, match=r"not jet, since a comparison .*the derivative may jump"):
        tn.gradcheck(lambda x: np.maximum(x, 0), lambda dy, x: dy * (x > 0), x, method="jet")


def test_jets_of_a_sum_that_cancels_to_zero() -> None:
    """sin**2 + cos**2: the enclosure of a slope of zero is never narrow relative to its size."""

    def forward(x: Array) -> Any:
        return np.sin(x) ** 2 + np.cos(x) ** 2

    forbid_jet(FAIL, forward, lambda dy, _: 0 * dy, data((2,)))
    demand_jet(FAIL, forward, lambda dy, _: dy, data((2,)))


def test_jets_with_a_constant_output() -> None:
    """An output without jets has a derivative of zero."""
    demand_jet(PASS, lambda x: (2 * x, np.ones(3)), lambda dys, _: 2 * dys[0], data((4,)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_jets_take_inputs_exactly(dtype: Any) -> None:
    def backward(dy: Array, x: Array) -> Array:
        return 2 * dy.astype(np.float64) * x.astype(np.float64)

    demand_jet(PASS, lambda x: x * x, backward, np.array([0.1, 0.3], dtype), tol=1e-15)
