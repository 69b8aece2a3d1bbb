"""Pairs of float64: exact where they say so, else within their bound."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from promise.families import Array
from truenorm.kernels import double_double
from truenorm.kernels.double_double import Pair
from truenorm.kernels.tuning import W


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
    found = exactly(*getattr(double_double, name)(a, b))
    assert found == [RIGHT[right](x, y) for x, y in zip(exactly(a), exactly(b), strict=True)]


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
    for x, y, found in zip(exactly(*A), others, exactly(high, low), strict=True):
        assert abs(found - right(x, y)) <= bound * Fraction(W) * abs(right(x, y))
    # Normalized: the low part is at most half a unit in the last place of the high one.
    assert (high + low == high).all()


def test_inverse_root() -> None:
    a = double_double.two_sum(np.abs(A[0]), np.copysign(A[1], A[0] * A[1]))
    for w, found in zip(exactly(*a), exactly(*double_double.inverse_root(a)), strict=True):
        # (found*sqrt(w))**2 = 1 + 2*error, to first order
        assert abs((found * found * w - 1) / 2) <= 32 * Fraction(W)


@pytest.mark.parametrize("count", [1, 2, 3, 17, 64, 1000])
def test_tree_sum(count: int) -> None:
    terms = normalized(4, count)
    high, low = double_double.tree_sum((terms[0][np.newaxis], terms[1][np.newaxis]), 1)
    values = exactly(*terms)
    (total,) = exactly(high[0], low[0])
    depth = (count - 1).bit_length()
    assert abs(total - sum(values)) <= 3 * Fraction(W) * depth * sum(map(abs, values))
