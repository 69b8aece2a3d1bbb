"""Compiled pairs: exact where they say so, and elsewhere within the bound they state."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from promise.families import Array  # noqa: E402
from truenorm.exact import FLOAT16, FLOAT32, FLOAT64, FloatFormat, round_ratio  # noqa: E402
from truenorm.kernels.fused.blocks import coded  # noqa: E402
from truenorm.kernels.fused.compiled.pairs import arithmetic as pairs  # noqa: E402
from truenorm.kernels.fused.compiled.pairs import rounding as pair_rounding  # noqa: E402

W = Fraction(1, 2**106)
Pair = tuple[Array, Array]


@numba.njit  # type: ignore[untyped-decorator]
def over(operation: Any, a: Any, b: Any, high: Any, low: Any) -> None:
    for k in range(high.size):
        high[k], low[k] = operation(a[k], b[k])


@numba.njit  # type: ignore[untyped-decorator]
def over_pair_and_float(operation: Any, a: Any, b: Any, high: Any, low: Any) -> None:
    for k in range(high.size):
        high[k], low[k] = operation((a[0, k], a[1, k]), b[k])


@numba.njit  # type: ignore[untyped-decorator]
def over_pairs(operation: Any, a: Any, b: Any, high: Any, low: Any) -> None:
    for k in range(high.size):
        high[k], low[k] = operation((a[0, k], a[1, k]), (b[0, k], b[1, k]))


@numba.njit  # type: ignore[untyped-decorator]
def roots(a: Any, high: Any, low: Any) -> None:
    for k in range(high.size):
        high[k], low[k] = pairs.inverse_root((a[0, k], a[1, k]))


@numba.njit  # type: ignore[untyped-decorator]
def odd(high: Any, low: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = pairs.rounded_to_odd(high[k], low[k])


@numba.njit  # type: ignore[untyped-decorator]
def scaled(high: Any, low: Any, bound: Any, exponents: Any, lower: Any, upper: Any) -> None:
    for k in range(lower.size):
        lower[k], upper[k] = pair_rounding.scaled_ends(
            high[k], low[k], bound[k], exponents[k], lower[0]
        )


def exactly(*parts: Any) -> list[Fraction]:
    return [
        sum((Fraction(float(part)) for part in one), Fraction(0))
        for one in zip(*parts, strict=True)
    ]


def normalized(seed: int, count: int = 2000) -> Array:
    """Return pairs of either sign, over 40 powers of two."""
    random = np.random.default_rng(seed)
    high = random.standard_normal(count) * 2.0 ** random.integers(-20, 20, count)
    low = np.spacing(np.abs(high)) * random.uniform(-0.5, 0.5, count)
    total = high + low
    return np.stack([total, low - (total - high)])


A, B = normalized(2), normalized(3)
NEARLY_MINUS_A = np.stack([-A[0], -A[1] * 0.75])


@pytest.mark.parametrize("operation", [pairs.two_sum, pairs.two_product])
def test_error_free(operation: Callable[[Any, Any], Any]) -> None:
    """Also where the parts are far apart, or integers of 53 bits."""
    random = np.random.default_rng(0)
    integers = random.integers(2**52, 2**53, (2, 500)).astype(np.float64)
    far = np.ldexp(random.standard_normal((2, 500)), random.integers(-400, 400, (2, 500)))
    a, b = (
        np.concatenate([A[:1], integers[:1], far[:1]], 1),
        np.concatenate([B[:1], integers[1:], far[1:]], 1),
    )
    high, low = np.empty((2, a.size))
    over(operation, a[0], b[0], high, low)
    for x, y, found in zip(exactly(a[0]), exactly(b[0]), exactly(high, low), strict=True):
        assert found == (x + y if operation is pairs.two_sum else x * y)


OPERATIONS: dict[str, tuple[Any, Any, Any, Callable[[Fraction, Fraction], Fraction], int]] = {
    "add": (pairs.add, A, B, lambda a, b: a + b, 3),
    "add, cancelling": (pairs.add, A, NEARLY_MINUS_A, lambda a, b: a + b, 3),
    "add_float": (pairs.add_float, A, B[0], lambda a, b: a + b, 2),
    "multiply": (pairs.multiply, A, B, lambda a, b: a * b, 7),
    "multiply_float": (pairs.multiply_float, A, B[0], lambda a, b: a * b, 3),
    "divide": (pairs.divide, A, B, lambda a, b: a / b, 15),
    "divide_float": (pairs.divide_float, A, B[0], lambda a, b: a / b, 4),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_relative_errors(name: str) -> None:
    operation, a, b, right, bound = OPERATIONS[name]
    high, low = np.empty((2, a.shape[1]))
    (over_pairs if b.ndim == 2 else over_pair_and_float)(operation, a, b, high, low)
    others = exactly(*b) if b.ndim == 2 else exactly(b)
    for x, y, found in zip(exactly(*a), others, exactly(high, low), strict=True):
        assert abs(found - right(x, y)) <= bound * W * abs(right(x, y))
    # Normalized: the low part is at most half a unit in the last place of the high one.
    assert (high + low == high).all()


def test_inverse_root() -> None:
    a = np.stack([np.abs(A[0]), np.copysign(A[1], A[0] * A[1])])
    high, low = np.empty((2, a.shape[1]))
    roots(a, high, low)
    for w, found in zip(exactly(*a), exactly(high, low), strict=True):
        # (found*sqrt(w))**2 = 1 + 2*error, to first order
        assert abs((found * found * w - 1) / 2) <= 32 * W


@pytest.mark.parametrize("exponent", [0, 1, -1, 1023, -1022, -1074])
def test_powers_of_two(exponent: int) -> None:
    assert pairs.power_of_two(exponent) == 2.0**exponent


@pytest.mark.parametrize(("exponent", "limit"), [(1024, math.inf), (9**9, math.inf), (-1076, 0.0)])
def test_powers_of_two_where_float64_ends(exponent: int, limit: float) -> None:
    assert pairs.power_of_two(exponent) == limit


@pytest.mark.parametrize("target", [FLOAT16, FLOAT32], ids=lambda target: target.name)
def test_rounding_to_odd_leaves_one_rounding(target: FloatFormat) -> None:
    """Sums beside midpoints and numbers of the type, where two roundings to nearest are seen."""
    random = np.random.default_rng(4)
    digits = 2 ** (target.precision + 1)
    high = random.integers(digits // 2, digits, 3000) * random.choice([-1.0, 1.0], 3000)
    low = random.choice([0.0, 1.0, -1.0, 2.0**-30, -(2.0**-30), 2.0**-300], 3000) * 2.0**-60
    out = np.empty(3000)
    odd(high, low, out)
    for value, exact in zip(out.tolist(), exactly(high, low), strict=True):
        expected = round_ratio(exact.numerator, exact.denominator, target)
        assert round_ratio(*value.as_integer_ratio(), target) == expected


@pytest.mark.parametrize("target", [FLOAT16, FLOAT32, FLOAT64], ids=lambda target: target.name)
def test_scaled_ends(target: FloatFormat) -> None:
    """Each end is rounded once, whatever its power of two: ties, subnormals and infinities."""
    random = np.random.default_rng(1)
    count = 4000
    quantum = 2.0 ** -random.integers(6, 54, count)
    high = np.rint(random.standard_normal(count) / quantum) * quantum
    high[: count // 4] = 2.0 ** random.integers(-3, 3, count // 4)  # where the last place changes
    high[high == 0] = 1.0
    shares = [0, 0.5, -0.5, 0.25, -0.25, 0.1, -0.3, 2.0**-40, -(2.0**-40), 1e-300]
    low = np.spacing(np.abs(high)) * random.choice(shares, count)
    bound = np.abs(high) * random.choice([0.0, 0.0, 2.0**-54, 2.0**-60], count)
    small = [0, -1, -14, -24, -25, -126, -149, -151, -1022, -1060, -1074, -1076, -3000]
    large = [1, 15, 16, 127, 128, 1022, 1023, 1024, 3000]
    exponents = random.choice([*small, *large], count)
    lower, upper = np.empty((2, count), target.name)
    scaled(high, low, bound, exponents, coded(lower, target), coded(upper, target))
    for side, ends in ((-1, lower), (1, upper)):
        for k, end in enumerate(ends.tolist()):
            # The sum of the small parts is rounded: what they stand for is what is looked at.
            rest = float(low[k] + side * bound[k])
            exact = (Fraction(float(high[k])) + Fraction(rest)) * Fraction(2) ** int(exponents[k])
            expected = round_ratio(exact.numerator, exact.denominator, target)
            assert end == expected, (high[k], low[k], bound[k], exponents[k])
            assert math.copysign(1, end) == math.copysign(1, expected)
