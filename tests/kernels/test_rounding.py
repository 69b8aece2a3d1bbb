"""Rounding of float64 and of scaled pairs, in NumPy and compiled, against exact ratios."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from promise.families import Array
from promise.judging import BACKENDS
from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, FloatFormat, round_ratio
from truenorm.kernels.double_double import two_sum
from truenorm.kernels.rounding import canonical_nan, round_pair, round_to, same_roundings
from truenorm.kernels.storage import widen

TARGETS = [FLOAT16, BFLOAT16, FLOAT32, FLOAT64]
of_each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
needs_numba = pytest.mark.skipif("fused" not in BACKENDS, reason="needs Numba")

if "fused" in BACKENDS:
    import numba

    from truenorm.kernels.fused.blocks import coded
    from truenorm.kernels.fused.compiled.pairs import arithmetic
    from truenorm.kernels.fused.compiled.pairs.rounding import scaled_ends
    from truenorm.kernels.fused.compiling import kernel

    parts: Any = arithmetic
    power_of_two: Any = kernel(parts.power_of_two.py_func)
    rounded_to_odd: Any = kernel(parts.rounded_to_odd.py_func)


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


def exactly(high: float, low: float, exponent: int) -> Fraction:
    return (Fraction(float(high)) + Fraction(float(low))) * Fraction(2) ** int(exponent)


@of_each_target
def test_round_pair(target: FloatFormat) -> None:
    high, low, exponents = scaled_pairs()
    high, low = two_sum(high, low)
    with np.errstate(all="ignore"):
        rounded = widen(round_pair(high, low, exponents, target), target)
    for *pair, got in zip(high, low, exponents, rounded.tolist(), strict=True):
        assert_rounded(exactly(*pair), got, target)


@needs_numba
@pytest.mark.parametrize("target", [FLOAT16, FLOAT32, FLOAT64], ids=lambda target: target.name)
def test_scaled_ends(target: FloatFormat) -> None:
    """Each end is rounded once, whatever its power of two."""

    @numba.njit
    def scaled(pairs: Any, bound: Any, exponents: Any, lower: Any, upper: Any) -> None:
        for k in range(lower.size):
            lower[k], upper[k] = scaled_ends(
                pairs[0, k], pairs[1, k], bound[k], exponents[k], lower[0]
            )

    high, low, exponents = scaled_pairs()
    random = np.random.default_rng(2)
    bound = np.abs(high) * random.choice([0.0, 0.0, 2.0**-54, 2.0**-60], high.size)
    lower, upper = np.empty((2, high.size), target.name)
    scaled(np.array([high, low]), bound, exponents, coded(lower, target), coded(upper, target))
    for side, ends in ((-1, lower), (1, upper)):
        # The sum of the small parts is rounded: what they stand for is what is looked at.
        for *pair, got in zip(high, low + side * bound, exponents, ends.tolist(), strict=True):
            assert_rounded(exactly(*pair), got, target)


@needs_numba
@pytest.mark.parametrize("target", [FLOAT16, FLOAT32], ids=lambda target: target.name)
def test_rounding_to_odd_leaves_one_rounding(target: FloatFormat) -> None:
    """Sums beside midpoints and numbers of the type, where two roundings to nearest are seen."""
    random = np.random.default_rng(4)
    digits = 2 ** (target.precision + 1)
    high = random.integers(digits // 2, digits, 3000) * random.choice([-1.0, 1.0], 3000)
    low = random.choice([0.0, 1.0, -1.0, 2.0**-30, -(2.0**-30), 2.0**-300], 3000) * 2.0**-60
    for pair in zip(high.tolist(), low.tolist(), strict=True):
        odd = Fraction(rounded_to_odd(*pair))
        once = round_ratio(odd.numerator, odd.denominator, target)
        assert_rounded(exactly(*pair, 0), once, target)


@needs_numba
@pytest.mark.parametrize("exponent", [0, 1, -1, 1023, -1022, -1074])
def test_powers_of_two(exponent: int) -> None:
    assert power_of_two(exponent) == 2.0**exponent


@needs_numba
def test_powers_of_two_where_float64_ends() -> None:
    assert [power_of_two(k) for k in (1024, 9**9, -1076)] == [math.inf, math.inf, 0.0]


def test_same_roundings_compares_bits() -> None:
    zeros = np.array([0.0, -0.0, np.inf], np.float32)
    tested = same_roundings(zeros, np.array([0.0, 0.0, np.inf], np.float32))
    assert tested.refused.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("target", "pattern"),
    list(zip(TARGETS, [0x7E00, 0x7FC0, 0x7FC00000, 0x7FF8000000000000], strict=True)),
    ids=lambda value: getattr(value, "name", None),
)
def test_canonical_nan(target: FloatFormat, pattern: int) -> None:
    nan = np.array(canonical_nan(target))
    assert int(nan.view(f"u{nan.itemsize}")) == pattern
