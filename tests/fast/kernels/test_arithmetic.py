"""Rounding, double-double arithmetic and sums of known depth, compared with exact ratios."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shared.promise.families import Array
from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, FloatFormat, round_ratio
from truenorm.kernels import double_double
from truenorm.kernels.double_double import Pair, two_sum
from truenorm.kernels.reference.tier1 import column_sums, depth_of_sum, row_sums
from truenorm.kernels.rounding import round_pair, round_to, same_roundings
from truenorm.kernels.rows import widen
from truenorm.kernels.tuning import W

TARGETS = [FLOAT16, BFLOAT16, FLOAT32, FLOAT64]
of_each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


def assert_rounded(exact: Fraction, got: float, target: FloatFormat) -> None:
    expected = round_ratio(exact.numerator, exact.denominator, target)
    assert got == expected, exact
    assert math.copysign(1, got) == math.copysign(1, expected), exact


@of_each_target
def test_round_to(target: FloatFormat) -> None:
    random = np.random.default_rng(0)
    values = random.standard_normal(3000) * 2.0 ** random.integers(-200, 200, 3000)
    halfway = np.rint(values[:1500] * 2.0**9) / 2.0**9  # ties of the narrow types
    # The first is above a tie of bfloat16; by way of float32 it would be one.
    special = [1 + 2.0**-8 + 2.0**-40, 3.4e38, 65519.999, 65520.0, 1e300, 5e-324, -1e-300]
    values = np.concatenate([values, halfway, special])
    values = values[values != 0]
    with np.errstate(all="ignore"):
        rounded = widen(round_to(values, target), target)
    for value, got in zip(values.tolist(), rounded.tolist(), strict=True):
        assert_rounded(Fraction(value), got, target)


def scaled_pairs() -> tuple[Array, Array, Array]:
    """Return pairs and exponents: ties, neighbours of powers of two, subnormals, infinities."""
    random = np.random.default_rng(1)
    count = 4000
    quantum = 2.0 ** -random.integers(6, 54, count)
    high = np.rint(random.standard_normal(count) / quantum) * quantum
    high[: count // 4] = 2.0 ** random.integers(-3, 3, count // 4)  # where the last place changes
    high[high == 0] = 1.0
    shares = [0, 0.5, -0.5, 0.25, -0.25, 0.1, -0.3, 2.0**-40, -(2.0**-40), 1e-300]
    low = np.spacing(np.abs(high)) * random.choice(shares, count)
    small = [0, -1, -14, -24, -25, -126, -133, -149, -151, -1022, -1060, -1074, -1076, -3000]
    large = [1, 15, 16, 127, 128, 1022, 1023, 1024, 3000]
    return high, low, random.choice([*small, *large], count)


def exact_value(high: float, low: float, exponent: int) -> Fraction:
    return (Fraction(float(high)) + Fraction(float(low))) * Fraction(2) ** int(exponent)


@of_each_target
def test_round_pair(target: FloatFormat) -> None:
    high, low, exponents = scaled_pairs()
    high, low = two_sum(high, low)
    with np.errstate(all="ignore"):
        rounded = widen(round_pair(high, low, exponents, target), target)
    for *pair, got in zip(high, low, exponents, rounded.tolist(), strict=True):
        assert_rounded(exact_value(*pair), got, target)


def test_same_roundings_compares_bits() -> None:
    zeros = np.array([0.0, -0.0, np.inf], np.float32)
    tested = same_roundings(zeros, np.array([0.0, 0.0, np.inf], np.float32))
    assert tested.undecided.tolist() == [False, True, False]


def normalized(seed: int, count: int = 2000) -> Pair:
    """Return pairs of either sign, over 40 powers of two."""
    random = np.random.default_rng(seed)
    high = random.standard_normal(count) * 2.0 ** random.integers(-20, 20, count)
    return double_double.two_sum(high, np.spacing(np.abs(high)) * random.uniform(-0.5, 0.5, count))


def exactly(*parts: Array) -> list[Fraction]:
    columns = np.array(parts).T.tolist()
    return [sum(map(Fraction, column), Fraction(0)) for column in columns]


A, B = normalized(2), normalized(3)
NEARLY_MINUS_A = (-A[0], -A[1] * 0.75)
RIGHT: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
}


@pytest.mark.parametrize(("name", "right"), [("two_sum", "add"), ("two_product", "multiply")])
def test_error_free(name: str, right: str) -> None:
    """Also where the parts are far apart, or integers of 53 bits."""
    random = np.random.default_rng(0)
    integers = random.integers(2**52, 2**53, (2, 500)).astype(np.float64)
    far = np.ldexp(random.standard_normal((2, 500)), random.integers(-400, 400, (2, 500)))
    a, b = np.concatenate([np.array([A[0], B[0]]), integers, far], axis=1)
    results = exactly(*getattr(double_double, name)(a, b))
    assert results == [RIGHT[right](x, y) for x, y in zip(exactly(a), exactly(b), strict=True)]


@pytest.mark.parametrize(
    ("name", "b", "bound"),
    [
        ("add", B, 3),
        ("add", NEARLY_MINUS_A, 3),
        ("add_float", B[0], 2),
        ("multiply", B, 7),
        ("multiply_float", B[0], 3),
        ("divide", B, 15),
        ("divide_float", B[0], 4),
    ],
)
def test_relative_errors(name: str, b: Any, bound: int) -> None:
    high, low = getattr(double_double, name)(A, b)
    right = RIGHT[name.removesuffix("_float")]
    others = exactly(*b) if isinstance(b, tuple) else exactly(b)
    for x, y, result in zip(exactly(*A), others, exactly(high, low), strict=True):
        assert abs(result - right(x, y)) <= bound * Fraction(W) * abs(right(x, y))
    # Normalized: the low part is at most half a unit in the last place of the high one.
    assert (high + low == high).all()


def test_inverse_root() -> None:
    a = double_double.two_sum(np.abs(A[0]), np.copysign(A[1], A[0] * A[1]))
    for w, root in zip(exactly(*a), exactly(*double_double.inverse_root(a)), strict=True):
        # (root*sqrt(w))**2 = 1 + 2*error, to first order
        assert abs((root * root * w - 1) / 2) <= 32 * Fraction(W)


@pytest.mark.parametrize("count", [1, 2, 3, 17, 64, 1000])
def test_tree_sum(count: int) -> None:
    terms = normalized(4, count)
    high, low = double_double.tree_sum((terms[0][np.newaxis], terms[1][np.newaxis]), 1)
    values = exactly(*terms)
    (total,) = exactly(high[0], low[0])
    depth = (count - 1).bit_length()
    assert abs(total - sum(values)) <= 3 * Fraction(W) * depth * sum(map(abs, values))


U = Fraction(1, 2**53)


@pytest.mark.parametrize("count", [1, 2, 3, 17, 63, 64, 65, 67, 513, 1000, 4099])
def test_error_is_within_the_depth(count: int) -> None:
    terms = np.random.default_rng(count).standard_normal((3, count))
    terms[1] += 1e6
    rows, columns = row_sums(terms), column_sums(terms.T.copy())
    assert rows.shape == (3, 1)
    assert columns.shape == (3,)
    for row, by_row, by_column in zip(terms.tolist(), rows[:, 0], columns, strict=True):
        exact = sum(map(Fraction, row), Fraction(0))
        bound = depth_of_sum(count) * U * sum(map(abs, map(Fraction, row)))
        assert abs(Fraction(float(by_row)) - exact) <= bound
        assert abs(Fraction(float(by_column)) - exact) <= bound


def test_depth_is_logarithmic() -> None:
    depths = [depth_of_sum(count) for count in (1, 2, 3, 64, 1024, 4096, 2**20)]
    assert depths == [0, 1, 2, 11, 15, 17, 25]
