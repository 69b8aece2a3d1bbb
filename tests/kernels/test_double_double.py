"""Double-double: exact where it says so, and elsewhere within the bound it states."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from truenorm.kernels import double_double as dd
from truenorm.kernels.double_double import Pair
from truenorm.kernels.ground import W


def pairs(seed: int, count: int = 2000) -> Pair:
    """Return normalized pairs of either sign, over 40 powers of two."""
    random = np.random.default_rng(seed)
    high = random.standard_normal(count) * 2.0 ** random.integers(-20, 20, count)
    return dd.two_sum(high, np.spacing(np.abs(high)) * random.uniform(-0.5, 0.5, count))


def exact(pair: Pair) -> list[Fraction]:
    return [Fraction(float(h)) + Fraction(float(l)) for h, l in zip(*pair, strict=True)]  # noqa: E741


@pytest.mark.parametrize("operation", [dd.two_sum, dd.two_product])
def test_error_free(operation: Callable[[Any, Any], Pair]) -> None:
    a, b = pairs(0)[0], pairs(1)[0]
    for x, y, found in zip(a, b, exact(operation(a, b)), strict=True):
        x, y = Fraction(float(x)), Fraction(float(y))
        assert found == (x + y if operation is dd.two_sum else x * y)


def largest_error(result: Pair, expected: list[Fraction]) -> float:
    """Return the largest relative error, in units of W."""
    return max(
        float(abs(found / right - 1) / Fraction(W)) if right else float(found != 0) / W
        for found, right in zip(exact(result), expected, strict=True)
    )


A, B = pairs(2), pairs(3)
NEARLY_MINUS_A = (-A[0], -A[1] * 0.75)
EXACT_A, EXACT_B = exact(A), exact(B)
FLOAT_B = [Fraction(float(b)) for b in B[0]]


@pytest.mark.parametrize(
    ("result", "expected", "bound"),
    [
        (dd.add(A, B), [a + b for a, b in zip(EXACT_A, EXACT_B, strict=True)], 3),
        (
            dd.add(A, NEARLY_MINUS_A),
            [a + b for a, b in zip(EXACT_A, exact(NEARLY_MINUS_A), strict=True)],
            3,
        ),
        (dd.add_float(A, B[0]), [a + b for a, b in zip(EXACT_A, FLOAT_B, strict=True)], 2),
        (dd.multiply(A, B), [a * b for a, b in zip(EXACT_A, EXACT_B, strict=True)], 7),
        (dd.multiply_float(A, B[0]), [a * b for a, b in zip(EXACT_A, FLOAT_B, strict=True)], 3),
        (dd.divide(A, B), [a / b for a, b in zip(EXACT_A, EXACT_B, strict=True)], 15),
        (dd.divide_float(A, B[0]), [a / b for a, b in zip(EXACT_A, FLOAT_B, strict=True)], 4),
    ],
    ids=[
        "add",
        "add cancelling",
        "add_float",
        "multiply",
        "multiply_float",
        "divide",
        "divide_float",
    ],
)
def test_relative_errors(result: Pair, expected: list[Fraction], bound: float) -> None:
    assert largest_error(result, expected) <= bound


def test_inverse_root() -> None:
    a = np.abs(A[0]), np.copysign(A[1], A[0] * A[1])
    a = dd.two_sum(a[0], a[1])
    for found, w in zip(exact(dd.inverse_root(a)), exact(a), strict=True):
        # (found*sqrt(w))**2 = 1 + 2*error, to first order
        assert abs(float((found * found * w - 1) / 2 / Fraction(W))) <= 32


@pytest.mark.parametrize("count", [1, 2, 3, 17, 64, 1000])
def test_tree_sum(count: int) -> None:
    terms = pairs(4, count)
    total = dd.tree_sum((terms[0][np.newaxis], terms[1][np.newaxis]), 1)
    values = exact(terms)
    error = abs(exact((total[0][0], total[1][0]))[0] - sum(values, Fraction(0)))
    depth = (count - 1).bit_length()
    assert error <= 3 * Fraction(W) * depth * sum(map(abs, values))
