"""PASS only if the floor is below the tolerance: the rule, noise, flat functions and kinks."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.gradient_check.pairs import (
    FAIL,
    GROSS,
    INCONCLUSIVE,
    PAIRS,
    PASS,
    Array,
    data,
    demand,
    forbid,
    layer_norm,
    softmax,
    tanh_backward,
    with_mistake,
)
from truenorm.gradient_check import GradientCheck, Verdict


class TestFloor:
    def test_tolerance_below_the_floor(self, method: Any) -> None:
        """Even an error of exactly zero does not pass."""
        pair = (np.exp, lambda dy, x: dy * np.exp(x), np.array([0.5]))
        floor = tn.gradcheck(*pair, method=method, tol=1e-300).floor
        forbid(PASS, *pair, method=method, tol=floor / 2)

    @pytest.mark.parametrize("factor", [0.0, 1.0, 1 + 1e-5])
    @pytest.mark.parametrize(
        "rounded",
        [lambda y: y.astype(np.float32).astype(np.float64), lambda y: np.round(y, 6)],
        ids=["float32", "six digits"],
    )
    @pytest.mark.parametrize("early", [True, False], ids=["of x", "of y"])
    def test_rounding_inside_forward(
        self, rounded: Callable[[Array], Array], factor: float, early: bool
    ) -> None:
        """Nearby values are equal: differences of zero do not mean a derivative of zero."""

        def forward(x: Array) -> Array:
            return np.tanh(rounded(x)) if early else rounded(np.tanh(x))

        def backward(dy: Array, x: Array) -> Array:
            return factor * tanh_backward(dy, x)

        pair = (forward, backward, data((4,)))
        for tol in (1e-6, 1e-8):
            forbid(FAIL if factor == 1 else PASS, *pair, method="central", tol=tol)
        demand(PASS if factor else FAIL, *pair, method="central", tol=0.01)

    @pytest.mark.parametrize("method", ["complex", "central"])
    def test_random_noise_in_forward(self, method: str) -> None:
        random = np.random.default_rng(0)

        def noisy(x: Array) -> Array:
            return np.tanh(x) * (1 + 1e-8 * random.standard_normal(x.shape))

        demand(INCONCLUSIVE, noisy, tanh_backward, data((4,)), method=method)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
class TestNonfinite:
    @pytest.mark.parametrize(
        "values", [[np.nan], [np.inf], [-np.inf], [np.inf, -np.inf] * 10], ids=str
    )
    @pytest.mark.parametrize("size", [5, 600])
    def test_in_a_gradient(self, values: list[float], size: int, method: str) -> None:
        """Also test infinities of both signs, whose sum is NaN."""

        def backward(dy: Array, x: Array) -> Array:
            dx = tanh_backward(dy, x)
            dx[2] = -2.0
            dx[4 : 4 + len(values)] = values[: size - 4]
            return dx

        result = demand(FAIL, np.tanh, backward, data((size,)), method=method)
        assert result.worst == ((4,) if size == 5 else None)

    @pytest.mark.parametrize("slope", [0.0, 1.0, np.nan])
    def test_at_the_edge_of_the_domain(self, slope: float, method: str) -> None:
        """The derivative of the square root is infinite at 0, and undefined below."""

        def backward(dy: Array, x: Array) -> Array:
            return np.asarray(dy * np.where(x == 0, slope, 0.5 / np.sqrt(x)))

        pair = (np.sqrt, backward, np.array([1.0, 0.0, 4.0]))
        forbid(PASS, *pair, method=method)
        if np.isnan(slope):
            demand(FAIL, *pair, method=method)

    @pytest.mark.parametrize(
        ("forward", "backward", "where"),
        [
            (lambda x: x * np.nan, lambda dy, x: 0 * dy * x, "nan at index [0] of its output"),
            (np.log, lambda dy, x: dy / x, "nan at index [1] of its output"),
            (lambda x: x.sum() / 0.0, lambda dy, x: dy + 0 * x, "inf: it has no derivative"),
            (lambda x: (x, np.log(x)), lambda dys, x: dys[0] + dys[1] / x, "[1] of output 1"),
        ],
        ids=["times NaN", "logarithm", "infinite sum", "second output"],
    )
    def test_forward_is_not_finite(self, forward: Any, backward: Any, where: str) -> None:
        """Jets would pass 1/x as the derivative of the logarithm below 0."""
        for method in ("auto", "central"):
            x = np.array([0.5, -1.0, -2.0])
            result = demand(INCONCLUSIVE, forward, backward, x, method=method)
            for shown in (str(result), repr(result)):
                assert where in shown
            assert "Choose inputs at which forward is finite" in str(result)
            assert "method=" not in str(result)

    def test_wrong_element_next_to_an_inconclusive_one(self) -> None:
        x = np.array([1.0, 0.0, 4.0])
        forbid(PASS, np.sqrt, lambda dy, _: 5 * dy, x, method="central")


class TestAssertion:
    """The output of a failed assertion."""

    X = np.array([0.5, 1.5])

    def test_repr_is_one_line(self) -> None:
        result = demand(
            FAIL, lambda x: x * x, lambda dy, x: [2, 3] * dy * x, self.X, method="central"
        )
        shown = repr(result)
        assert "\n" not in shown
        assert len(shown) <= 240  # pytest cuts the middle out of what is longer
        analytic = f"{result.inputs[0].analytic:.12g}"
        for part in ("FAIL", "gradient of x at [1]", analytic, "error 5.0e-01"):
            assert part in shown

    @pytest.mark.parametrize("check", [tn.gradcheck, tn.dot_test])
    def test_raise_exception(self, check: Callable[..., GradientCheck]) -> None:
        with pytest.raises(AssertionError, match="FAIL: gradient check by"):
            check(np.square, lambda dy, x: 3 * dy * x, self.X, raise_exception=True)
        assert check(np.square, lambda dy, x: 2 * dy * x, self.X, raise_exception=True)
        with pytest.raises(AssertionError, match="INCONCLUSIVE"):
            check(np.abs, lambda dy, x: dy * x, 0 * self.X, method="central", raise_exception=True)


Backward = Callable[[Array, Array], Array]


def logistic(x: Array) -> Array:
    """Cast to float64, so that only differences work."""
    return np.asarray(1 / (1 + np.exp(-x))).astype(np.float64)


FLAT: dict[str, tuple[Callable[[Array], Any], Backward, list[float]]] = {
    "beside a large constant":
        (lambda x: 1e8 + 1e-9 * np.arctan(x), lambda dy, x: 1e-9 * dy / (1 + x * x),
        [0.3, 1.0, 2.0]),
    "tanh": (np.tanh, tanh_backward, [40.0]),
    "tanh beside others": (np.tanh, tanh_backward, [40.0, 41.0]),
    "logistic": (logistic, lambda dy, x: dy * np.exp(-x) / (1 + np.exp(-x)) ** 2, [45.0, 50.0]),
    "rounded to float32 inside":
        (lambda x: (1 + 1e-10 * np.arctan(x)).astype(np.float32).astype(np.float64), lambda dy,
        x: 1e-10 * dy / (1 + x * x), [0.3, 1.0, 2.0]),
}  # fmt: skip


class TestFlatFunctions:
    """These functions are constant in float64: a derivative of 0 cannot be confirmed."""

    @pytest.mark.parametrize("name", FLAT)
    def test_neither_verdict(self, name: str) -> None:
        forward, backward, x = FLAT[name]
        demand(INCONCLUSIVE, forward, backward, np.array(x))
        result = demand(INCONCLUSIVE, forward, backward, np.array(x), method="central")
        assert "in its type it is flat" in str(result)

    @pytest.mark.parametrize("name", FLAT)
    def test_gradient_that_is_far_too_large_fails(self, name: str) -> None:
        forward, _, x = FLAT[name]
        demand(FAIL, forward, lambda dy, x: 1e12 * dy + 0 * x, np.array(x), method="central")

    def test_jets_pass_the_derivative_of_the_formula(self) -> None:
        pytest.importorskip("flint")
        x = np.array([40.0])
        demand(PASS, np.tanh, lambda dy, x: dy / np.cosh(x) ** 2, x, method="jet")
        zero = demand(INCONCLUSIVE, np.tanh, lambda dy, x: 0 * dy * x, x, method="jet")
        assert "what it returns has 0" in str(zero)


def relu(x: Array) -> Any:
    return np.where(x > 0, x, 0 * x)


def relu_backward(dy: Array, x: Array, at_zero: float = 0.0, factor: float = 1.0) -> Array:
    return np.asarray(factor * dy * np.where(x == 0, at_zero, x > 0))


class TestKinks:
    """A kink has a left and a right derivative, and no derivative at the point."""

    @pytest.mark.parametrize("at", [1e-13, -1e-13, 1e-300])
    def test_nearer_than_the_smallest_step(self, at: float, method: str) -> None:
        """Only jets can tell on which side of the kink a point is."""
        x = np.array([at, 1.0, -1.0])
        if method == "jet":
            demand(PASS, relu, relu_backward, x, method=method)
            demand(FAIL, relu, lambda dy, x: dy * (x < 0), x, method=method)
        else:
            forbid(FAIL, relu, relu_backward, x, method=method)

    @pytest.mark.parametrize("method", ["auto", "central"])
    @pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("size", [3, 600])
    def test_at_the_kink(self, slope: float, size: int, method: str) -> None:
        x = np.random.default_rng(0).standard_normal(size)
        x[1] = 0.0
        backward = partial(relu_backward, at_zero=slope)
        assert "kink" in str(demand(INCONCLUSIVE, relu, backward, x, method=method))

    @pytest.mark.parametrize("slope", [-7.0, -0.01, 1.01, 7.0])
    @pytest.mark.parametrize("size", [3, 600])
    def test_outside_of_the_one_sided_derivatives(self, slope: float, size: int) -> None:
        x = np.random.default_rng(0).standard_normal(size)
        x[1] = 0.0
        result = demand(FAIL, relu, partial(relu_backward, at_zero=slope), x)
        assert "a gradient there must lie between them" in str(result)
        assert result.worst == ((1,) if size == 3 else None)

    @pytest.mark.parametrize(
        ("slope", "verdict"), [(0.9, FAIL), (1.05, INCONCLUSIVE), (1.2, FAIL)]
    )
    def test_small_kink_of_a_steep_function(self, slope: float, verdict: Verdict) -> None:
        """The one-sided derivatives are 1 and 1.1."""

        def backward(dy: Array, x: Array) -> Array:
            return np.asarray(dy * np.where(x == 0, slope, 1 + 0.1 * (x > 0)))

        x = np.array([0.0, 1.0, -1.0])
        demand(verdict, lambda x: x + 0.1 * relu(x), backward, x, method="central")

    @pytest.mark.parametrize("zeros", [2, 4, 6])
    def test_kinks_that_cancel_in_the_loss(self, zeros: int) -> None:
        """With dy of both signs, the loss may have no kink; each output has one."""
        x = np.random.default_rng(0).standard_normal(600)
        x[:zeros] = 0.0
        for seed in range(8):
            forbid(FAIL, relu, relu_backward, x, seed=seed)

    @pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
    def test_complex_step_at_the_kink(self, slope: float) -> None:
        """Next to a constant, f(conj z) is close to conj f(z); the step shows one side."""
        x, backward = np.array([0.0, 1.0, -1.0]), partial(relu_backward, at_zero=slope)
        demand(INCONCLUSIVE, lambda x: 100 + relu(x), backward, x, method="complex")
        outside = partial(relu_backward, at_zero=slope + 7)
        demand(FAIL, lambda x: 100 + relu(x), outside, x, method="complex")

    @pytest.mark.parametrize("size", [8, 600])
    def test_distant_kinks_are_harmless(self, size: int) -> None:
        x = np.random.default_rng(0).standard_normal(size)
        demand(PASS, relu, relu_backward, x, method="central")
        demand(FAIL, relu, partial(relu_backward, factor=1 + 1e-3), x, method="central")


@pytest.mark.parametrize("slope_of_abs", [0.0, 1e-11])
def test_part_that_is_not_analytic(slope_of_abs: float) -> None:
    """A complex step ignores abs: neither a gradient with it nor one without it passes."""
    result = demand(
        INCONCLUSIVE,
        lambda x: x**2 + 1e-11 * np.abs(x),
        lambda dy, x: dy * (2 * x + slope_of_abs * np.sign(x)),
        np.array([1.0, 0.5, -1.0]),
        method="complex",
    )
    assert "not analytic" in str(result)


ROWS = 8
LABELS = np.arange(ROWS) % 10


def cross_entropy(x: Array) -> Any:
    top = x.max(axis=-1, keepdims=True)
    sums = np.exp(x - top).sum(axis=-1)
    return (np.log(sums) + top[:, 0] - x[np.arange(ROWS), LABELS]).mean()


def cross_entropy_backward(dy: Array, x: Array, factor: float = 1.0) -> Array:
    shares = softmax(x)
    shares[np.arange(ROWS), LABELS] -= 1
    return np.asarray(factor * dy * shares / ROWS)


@pytest.mark.usefixtures("no_flint")
def test_mean_loss_without_jets() -> None:
    """A contribution of 1/80 of the loss is inconclusive at 1e-12, and passes at 1e-6."""
    x = np.random.default_rng(0).standard_normal((ROWS, 10))
    result = demand(PASS, cross_entropy, cross_entropy_backward, x)
    assert (result.method, result.tol) == ("complex", 1e-6)
    demand(INCONCLUSIVE, cross_entropy, cross_entropy_backward, x, method="complex")
    demand(FAIL, cross_entropy, partial(cross_entropy_backward, factor=ROWS), x)


def test_first_inconclusive_result_is_returned_if_all_are() -> None:
    pytest.importorskip("flint")
    result = demand(INCONCLUSIVE, np.tanh, lambda dy, x: 0 * dy * x, np.array([40.0]))
    assert result.method == "jet"


@pytest.mark.parametrize("method", ["complex", "central"])
class TestSteep:
    """Curvature over a small part of the spread is not noise."""

    def test_a_steep_function(self, method: str) -> None:
        def backward(dy: Array, x: Array) -> Array:
            return np.asarray(300 * dy / np.cosh(300 * (x - 1)) ** 2)

        forbid(FAIL, lambda x: np.tanh(300 * (x - 1)), backward, np.ones(3), method=method)

    def test_a_constant_row(self, method: str) -> None:
        x = np.random.default_rng(0).standard_normal((3, 8))
        x[1] = 0.7
        for rows in (x, np.ones((3, 8))):
            inputs = [rows, np.ones(8), np.zeros(8)]
            forbid(FAIL, layer_norm, PAIRS["layer norm"].backward, inputs, method=method)


def test_a_derivative_of_zero(method: str) -> None:
    forbid(FAIL, lambda x: x**3, lambda dy, x: 3 * dy * x * x, np.zeros(1), method=method)


def test_a_gradient_that_is_zero_but_for_rounding(method: str) -> None:
    """A softmax is invariant under a shift."""
    x = np.random.default_rng(0).standard_normal(5)
    shift = np.array([0.3])
    forbid(FAIL, lambda by: softmax(x + by), lambda dy, _: 1e-17 * dy[:1], shift, method=method)


def test_a_gradient_far_too_small_in_a_projection(method: str) -> None:
    x = np.random.default_rng(0).standard_normal(600)
    demand(FAIL, lambda x: x * x, lambda dy, x: 2e-20 * dy * x, x, method=method)


def root_by_bisection(x: Array, steps: int, bracket: float = 0.0) -> Any:
    """Solve y**3 + y = x; the bracket may move with x."""
    low, high = bracket * x - 4, bracket * x + 4
    for _ in range(steps):
        middle = (low + high) / 2
        below = middle**3 + middle < x
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def root_backward(dy: Array, x: Array, factor: float = 1.0) -> Array:
    y = root_by_bisection(x, 60)
    return np.asarray(factor * dy / (3 * y * y + 1))


class TestStaircases:
    """The program is constant, or moves with its bracket; the function that it follows does not.

    The derivatives of the program are 0 and the slope of the bracket, here 0.7.
    """

    X = np.array([0.6, -1.3, 2.1, 0.9])

    @pytest.mark.parametrize("steps", [18, 30, 45])
    @pytest.mark.parametrize("bracket", [0.0, 0.7])
    def test_neither_derivative_is_confirmed(self, steps: int, bracket: float) -> None:
        pytest.importorskip("flint")
        forward = partial(root_by_bisection, steps=steps, bracket=bracket)
        for backward in (root_backward, lambda dy, _: bracket * dy):
            for x in (self.X, np.linspace(0.5, 2.5, 100)):
                result = demand(INCONCLUSIVE, forward, backward, x)
                assert "forward is a staircase" in str(result)

    def test_gradient_that_is_neither_fails(self) -> None:
        forward = partial(root_by_bisection, steps=30)
        for factor in (-1.0, 7.0):
            demand(FAIL, forward, partial(root_backward, factor=factor), self.X)

    @pytest.mark.parametrize("function", [np.floor, np.ceil, np.trunc, np.rint])
    def test_steps_that_are_small_beside_the_input(self, function: Any) -> None:
        pytest.importorskip("flint")
        x = np.array([1e5 + 0.25, 2e5 + 0.4])
        for slope in (0.0, 1.0):
            result = demand(INCONCLUSIVE, function, partial(np.multiply, slope), x)
            assert "forward is a staircase" in str(result)

    @pytest.mark.parametrize("at", [-0.1, -1e-3, -1e-9, -3.0])
    def test_zero_beside_a_kink(self, at: float) -> None:
        pytest.importorskip("flint")
        demand(PASS, relu, relu_backward, np.array([at, 0.5, 1.5, -2.0]))
        demand(FAIL, relu, lambda dy, _: dy, np.array([at, 0.5, 1.5, -2.0]))

    def test_input_that_does_not_matter(self) -> None:
        pytest.importorskip("flint")

        def forward(x: Array, unused: Array) -> Any:
            return np.maximum(x, 0.3) + 0 * unused.sum()

        def backward(dy: Array, x: Array, unused: Array) -> tuple[Array, Array]:
            return dy * (x > 0.3), 0 * unused

        demand(PASS, forward, backward, [np.array([1.0, 2.0]), np.array([0.4, 7.0])])


class TestMessages:
    """Messages of inconclusive checks."""

    @pytest.mark.parametrize(
        "forward",
        [
            lambda x: np.tanh(x.astype(np.float32)),
            lambda x: np.tanh(x.astype(np.float32).astype(np.float64)),
        ],
        ids=["to float32", "and back"],
    )
    def test_a_cast_is_not_called_a_kink(self, forward: Any) -> None:
        result = demand(INCONCLUSIVE, forward, tanh_backward, np.array([0.5, 0.3, -1.0]))
        assert "as if it rounded to fewer digits" in str(result)
        assert "kink" not in str(result)

    @pytest.mark.parametrize("function", [np.floor, np.ceil, np.trunc, np.rint])
    def test_at_a_step_there_is_none(self, function: Any) -> None:
        x = np.array([0.3, 2.5 if function is np.rint else 2.0])
        result = demand(INCONCLUSIVE, function, lambda dy, _: 0 * dy, x)
        assert "Choose inputs without ties" in str(result) or "flat" in str(result)

    def test_a_forward_that_is_not_deterministic(self, method: str) -> None:
        random = np.random.default_rng(0)

        def dropout(x: Array) -> Array:
            return x * (random.random(x.shape) < 0.5)

        result = demand(INCONCLUSIVE, dropout, lambda dy, _: dy, np.ones(6), method=method)
        assert "forward is not deterministic: two calls with the same inputs" in str(result)
        assert "forward is not deterministic" in repr(result)


NUMBERS = re.compile(r"error (\S+), floor (\S+?),(?: rounding (\S+),)? tolerance (\S+?)[ )]")
PRINTED = 0.05
"""Relative rounding error of a printed number."""


def wrong_pairs() -> Iterator[tuple[Any, Any, Any]]:
    """Yield wrong pairs: exact and noisy, flat and with kinks, at several sizes of errors."""
    for pair in PAIRS.values():
        for mistake in GROSS:
            yield pair.forward, with_mistake(pair, mistake, pair.at_fault), pair.inputs
    x = np.array([0.0, 0.3, -0.7, 1e-9, 2.0, 20.0])
    large = np.resize(x, 120) + np.linspace(0, 0.1, 120)
    functions: list[tuple[Any, Any]] = [
        (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
        (lambda x: np.sin(1e6 * x), lambda x: 1e6 * np.cos(1e6 * x)),
        (relu, lambda x: x > 0),
        (lambda x: np.tanh(x.astype(np.float32)), lambda x: 1 - np.tanh(x) ** 2),
        (lambda x: np.tanh(1e7 + x - 1e7), lambda x: 1 - np.tanh(x) ** 2),
        (lambda x: 1 + 0 * x, lambda x: 1e-3 + 0 * x),
    ]
    # Elements and projections in turn: each verdict takes a tenth of a second.
    factors = (1 + 1e-11, 1 + 1e-7, 1 + 3e-6, 1.01, 3.0, -1e6, 1e-9)
    for factor, inputs in zip(factors, cycle([x, large]), strict=False):
        for forward, slope in functions:
            yield forward, lambda dy, x, s=slope, f=factor: f * dy * s(x), inputs


@pytest.mark.parametrize("method", ["auto", "complex", "central"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_printed_numbers_are_those_that_decided(method: Any) -> None:
    """An error of a FAIL is above tolerance + floor, or + 4 floors if that is an estimate."""
    failures = 0
    for forward, backward, inputs in wrong_pairs():
        try:
            result = tn.gradcheck(forward, backward, inputs, method=method)
        except ValueError:  # the method does not take this function
            continue
        for check in result.inputs:
            if check.verdict is not FAIL:
                continue
            failures += 1
            floors = 1 if result.method == "jet" else 4
            for shown in (str(check), check.summary):
                match = NUMBERS.search(shown)
                assert match, shown
                error, floor, rounding, tol = (float(each or 0) for each in match.groups())
                allowed = tol + floors * floor + rounding
                assert (1 + PRINTED) * error > (1 - PRINTED) * allowed, str(result)
    assert failures > 50
