"""The contestants compute in the type itself, each by its own formula."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import truenorm as tn
from truenorm.demo.algorithms import ALGORITHMS, contestants, run
from truenorm.verify.operation import Case
from truenorm.verify.operations import layer_norm_case

SIZE = 5  # NumPy adds up to eight numbers one after the other, as the loops below do
Number = Any  # a scalar of one type: its arithmetic rounds to that type


def parameters(given: Case) -> tuple[NDArray[Any], NDArray[Any]]:
    assert given.gamma is not None
    assert given.beta is not None
    return given.gamma, given.beta


def case(dtype: str, offset: float = 300.0, eps: float = 1e-5) -> Case:
    random = np.random.default_rng(3)
    x, dy = (offset * k + random.standard_normal((2, SIZE)) for k in (1, 0))
    gamma, beta = random.standard_normal((2, SIZE))
    x, gamma, beta, dy = (each.astype(dtype) for each in (x, gamma, beta, dy))
    return layer_norm_case("small", (x, gamma, beta, dy), eps)


def mean(values: list[Number]) -> Number:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total / type(total)(len(values))


def squares(values: list[Number]) -> list[Number]:
    return [value * value for value in values]


def one_pass(x: list[Number]) -> tuple[list[Number], Number]:
    m = mean(x)
    return [each - m for each in x], mean(squares(x)) - m * m


def two_pass(x: list[Number]) -> tuple[list[Number], Number]:
    m = mean(x)
    c = [each - m for each in x]
    return c, mean(squares(c))


def corrected(x: list[Number]) -> tuple[list[Number], Number]:
    c, v = two_pass(x)
    return c, v - mean(c) * mean(c)


def pair(x: list[Number]) -> tuple[list[Number], Number]:
    c, _ = two_pass(x)
    return two_pass(c)


def welford(x: list[Number]) -> tuple[list[Number], Number]:
    m = s = type(x[0])(0)
    for count, each in enumerate(x, 1):
        before = each - m
        m = m + before / type(m)(count)
        s = s + before * (each - m)
    return [each - m for each in x], s / type(s)(len(x))


LOOPS: dict[str, Callable[[list[Number]], tuple[list[Number], Number]]] = {
    "one-pass": one_pass,
    "Welford": welford,
    "two-pass (textbook)": two_pass,
    "corrected two-pass": corrected,
    "pair mean": pair,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LOOPS)
def test_every_rounding_is_one_of_the_type(name: str, dtype: str) -> None:
    """Scalar by scalar, the same bits: nothing is kept in a wider type on the way."""
    given = case(dtype, offset=30.0)
    results = run(name, given)
    for i, row in enumerate(given.x):
        centred, variance = LOOPS[name](list(row))
        kind = type(variance)
        r = kind(1) / np.sqrt(variance + kind(given.eps))
        assert results.variance is not None
        assert results.variance[i] == variance
        parts = zip(centred, *parameters(given), strict=True)
        assert results.y[i].tolist() == [float(g * (c * r) + b) for c, g, b in parts]


@pytest.mark.parametrize(("dtype", "count"), [("float16", 8), ("float32", 8), ("float64", 7)])
def test_results_have_the_type_of_x(dtype: str, count: int) -> None:
    assert len(contestants(dtype)) == count  # for float64 there is nothing wider
    for name in contestants(dtype):
        for result in run(name, case(dtype)):
            assert result is None or result.dtype == dtype


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("two-pass (textbook)", "float32"), ("textbook in float64 then cast", "float64")],
)
def test_the_textbook_is_cast_at_the_end(name: str, dtype: str) -> None:
    given = case("float32", offset=3e4)
    inputs = (given.x, *parameters(given), given.dy)
    x, gamma, beta, dy = (each.astype(dtype) for each in inputs)
    y, saved = tn.textbook.forward(x, gamma, beta, given.eps)
    expected = [y, *tn.textbook.backward(dy, saved)]
    for ours, theirs in zip(run(name, given)[1:], expected, strict=True):
        assert ours.tobytes() == theirs.astype(np.float32).tobytes()


def test_the_rounded_exact_mean_is_the_best_single_number() -> None:
    """The mean of [0, 1, 1] + 1e7 is 10000000.67: the float32 next to it is 10000001."""
    x = np.array([[1e7, 1e7 + 1, 1e7 + 1]], np.float32)
    ones = np.ones(3, np.float32)
    found = run("rounded exact mean", layer_norm_case("", (x, ones, 0 * ones, x), 0.0))
    assert found.y[0, 1:].tolist() == [0, 0]
    assert found.y[0, 0] == pytest.approx(-1 / math.sqrt(2 / 9), rel=2**-22)


def test_ours_is_what_the_package_computes() -> None:
    given = case("float32", offset=1e6)
    y, saved = tn.layer_norm_forward(given.x, given.gamma, given.beta, eps=given.eps)
    expected = [y, *tn.layer_norm_backward(given.dy, saved)]
    found = run("truenorm", given)
    assert found.variance is None
    for ours, theirs in zip(found[1:], expected, strict=True):
        assert theirs is not None
        assert ours.tobytes() == theirs.tobytes()


def test_overflow_is_no_accident() -> None:
    """Not even where the caller made it one."""
    given = case("float16", offset=60000.0)
    with np.errstate(all="raise"):
        for name in ALGORITHMS:
            run(name, given)
