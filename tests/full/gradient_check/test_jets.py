"""Numbers that carry their derivative, and arrays of them.

Derivatives are compared with central differences of the function in balls of 400 bits: with a step
of 2**-120 those are off by about 2**-240, and no rule of differentiation is in them.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shared.gradient_check.pairs import Array

flint = pytest.importorskip("flint")
jets = pytest.importorskip("truenorm.gradient_check.jets")
arb, Jet, UndecidedError = flint.arb, jets.Jet, jets.UndecidedError

STEP = 2.0**-120
OFF = 2.0**-200


@pytest.fixture(autouse=True)
def _many_bits() -> Any:
    with flint.ctx.workprec(400):
        yield


def jet(value: Any, slope: float = 0.0) -> Any:
    return Jet(arb(value), arb(slope))


def assert_encloses(function: Callable[..., Any], *points: float) -> None:
    """Compare value and slope with a difference quotient along a direction of ones."""
    result = function(*(jet(point, 1.0) for point in points))
    above, at, below = (
        function(*(Jet(arb(point) + arb(h), arb(0)) for point in points)).value
        for h in (STEP, 0.0, -STEP)
    )
    quotient = (above - below) / (2 * arb(STEP))
    assert result.value.overlaps(at)
    assert abs(result.slope - quotient) < arb(OFF) * (1 + abs(quotient))
    assert result.slope.rad() < arb(OFF)


ONE_ARGUMENT: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(np, name) for name in ("sqrt", "exp", "expm1", "log", "log1p")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tanh", "abs", "square")},
    "erf": lambda x: x.erf(),
    "a staircase": lambda x: np.floor(x + 0.25) + np.ceil(x + 0.25) + np.trunc(x + 0.25),
    "rounded": lambda x: np.rint(x - 0.25) * x,
    "negative": operator.neg,
    "positive": operator.pos,
    "reciprocal": lambda x: 1 / x,
    "square by **": lambda x: x**2,
    "cube": lambda x: x**3,
    "root by **": lambda x: x**0.5,
    "reciprocal root by **": lambda x: x**-0.5,
    "reciprocal cube": lambda x: x**-3,
    "power 1.5": lambda x: x**1.5,
    "power of itself": lambda x: x**x,
    "exponent": lambda x: 2**x,
    "exponent of a float": lambda x: 1.5**x,
    "power of NumPy's float": lambda x: x ** np.float64(2.5),
}


@pytest.mark.parametrize("point", [0.375, 1.0, 2.5])
@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_functions(name: str, point: float) -> None:
    assert_encloses(ONE_ARGUMENT[name], point)


@pytest.mark.parametrize(
    "function", [np.sin, np.tanh, np.expm1, abs, lambda x: x**3, lambda x: x**-2, lambda x: x * x]
)
def test_functions_below_zero(function: Callable[[Any], Any]) -> None:
    assert_encloses(function, -0.75)


def test_known_values() -> None:
    """Compare with values that need no differences."""
    assert abs(np.exp(jet(1, 2)).slope - 2 * arb(1).exp()) < arb(OFF)
    assert np.sqrt(jet(4, 1)).slope == arb(0.25)
    assert (jet(3, 1) ** 3).slope == arb(27)
    assert (jet(3, 1) * jet(5, 7)).slope == arb(26)
    assert (jet(1, 1) / jet(2, 4)).slope == arb(-0.5)
    assert jet(0, 1).tanh().slope == arb(1)


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]
NUMBERS: list[Any] = [3, 0.7, True, np.float64(0.7), np.float32(1.5), np.float16(0.5), np.int32(2)]


Operation = Callable[[Any, Any], Any]


@pytest.mark.parametrize("operation", OPERATORS)
class TestOperators:
    def test_of_two_jets(self, operation: Operation) -> None:
        assert_encloses(operation, 1.25, 0.375)
        assert_encloses(lambda x: operation(x, x), 1.25)

    @pytest.mark.parametrize("number", NUMBERS, ids=repr)
    def test_of_numbers(self, number: Any, operation: Operation) -> None:
        assert_encloses(lambda x: operation(x, number), 1.25)
        assert_encloses(lambda x: operation(number, x), 1.25)

    def test_numbers_are_taken_without_an_error(self, operation: Operation) -> None:
        result, balls = operation(jet(2), 0.1), operation(arb(2), arb(0.1))
        assert result.value.overlaps(balls)
        assert result.value.rad() <= 4 * balls.rad() + arb(2.0**-390)

    def test_other_types(self, operation: Operation) -> None:
        for other in ("x", None, 1j, [1.0]):
            with pytest.raises(TypeError):
                operation(jet(2), other)
            with pytest.raises(TypeError):
                operation(other, jet(2))

    @pytest.mark.parametrize("size", [1, 3])
    def test_of_arrays_of_floats(self, size: int, operation: Operation) -> None:
        for result in (operation(jet(2), np.ones(size)), operation(np.ones(size), jet(2))):
            assert isinstance(result, np.ndarray)
            assert result.shape == (size,)


COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


class TestComparisons:
    @pytest.mark.parametrize("compare", COMPARISONS)
    def test_of_disjoint_balls(self, compare: Callable[[Any, Any], bool]) -> None:
        small, large = jet(1), jet(2)
        for below, above in [(small, large), (small, 2), (1, large), (np.float64(1), large)]:
            assert bool(compare(below, above)) is compare(1, 2)  # a bool of NumPy 2.0 among them
            assert bool(compare(above, below)) is compare(2, 1)

    @pytest.mark.parametrize("compare", COMPARISONS)
    def test_of_overlapping_balls(self, compare: Callable[[Any, Any], bool]) -> None:
        wide = Jet(arb(1, 0.5), arb(0))
        for other in (jet(1.25), 1.25, Jet(arb(1.75, 0.5), arb(0))):
            with pytest.raises(UndecidedError, match="the derivative may jump"):
                compare(wide, other)

    def test_of_equal_points(self) -> None:
        """Equal values with different slopes: a kink has no derivative."""
        undecided = (lambda: jet(1, 1) < jet(1, 2), lambda: abs(jet(0, 1)), lambda: bool(jet(0)))
        for compare in undecided:
            with pytest.raises(UndecidedError):
                compare()
        same = jet(1)
        assert same == same  # np.max compares so
        assert bool(jet(2))


class TestArrays:
    ROWS = np.array([[0.5, 2.0, -1.0], [3.0, -0.25, 1.5]])

    def slopes_of(self, function: Callable[[Array], Any]) -> Array:
        """Return the gradient of a sum of outputs, element by element."""
        slopes = np.zeros(self.ROWS.shape)
        for index in np.ndindex(self.ROWS.shape):
            moving = np.vectorize(jet, otypes=[object])(self.ROWS)
            moving[index] = jet(self.ROWS[index], 1.0)
            slopes[index] = float(np.sum(function(moving)).slope)
        return slopes

    def test_sum_and_mean(self) -> None:
        np.testing.assert_array_equal(self.slopes_of(lambda x: x.sum(axis=1)), np.ones((2, 3)))
        means = self.slopes_of(lambda x: x.mean(axis=0))
        np.testing.assert_array_equal(means, np.full((2, 3), 0.5))

    def test_var_and_std(self) -> None:
        """D var/dx = 2*(x - mean)/n, and d std/dx is that over 2*std."""
        x = self.ROWS
        centred = x - x.mean()
        variances, deviations = self.slopes_of(np.var), self.slopes_of(np.std)
        np.testing.assert_allclose(variances, 2 * centred / 6, rtol=1e-15)
        np.testing.assert_allclose(deviations, centred / 6 / x.std(), rtol=1e-14)

    def test_max_and_where(self) -> None:
        largest = self.slopes_of(lambda x: x.max(axis=1))
        np.testing.assert_array_equal(largest, [[0, 1, 0], [1, 0, 0]])
        for relu in (lambda x: np.maximum(x, 0), lambda x: np.where(x > 0, x, 0)):
            np.testing.assert_array_equal(self.slopes_of(relu), self.ROWS > 0)

    def test_matmul(self) -> None:
        weights = np.array([[1.0, 2.0], [4.0, 8.0], [16.0, 32.0]])
        products: list[Callable[[Array], Any]] = [
            lambda x: x @ weights,
            lambda x: (weights.T @ x.T).T,
            lambda x: np.einsum("ij,jk->ik", x, weights.astype(object)),
        ]
        for product in products:
            np.testing.assert_array_equal(self.slopes_of(product), [[3, 12, 48]] * 2)

    @pytest.mark.parametrize(
        "cast",
        [
            lambda x: x.astype(np.float64),
            lambda x: np.array([float(value) for value in x.flat]),
            lambda x: np.add(x, 0.0, out=np.zeros(x.shape), casting="unsafe"),
            lambda x: np.zeros(x.shape).__setitem__(..., x),
        ],
    )
    def test_casts_that_lose_the_derivative(self, cast: Callable[[Array], Any]) -> None:
        with pytest.raises(TypeError, match="loses the derivative"):
            self.slopes_of(cast)
