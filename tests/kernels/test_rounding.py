"""Rounding of float64 and of scaled pairs, compared with exact ratios."""

import math
from fractions import Fraction

import numpy as np
import pytest

from promise.families import Array
from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, FloatFormat, round_ratio
from truenorm.kernels.double_double import two_sum
from truenorm.kernels.rounding import canonical_nan, round_pair, round_to, same_roundings
from truenorm.kernels.rows import widen

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


def test_same_roundings_compares_bits() -> None:
    zeros = np.array([0.0, -0.0, np.inf], np.float32)
    tested = same_roundings(zeros, np.array([0.0, 0.0, np.inf], np.float32))
    assert tested.undecided.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("target", "pattern"),
    list(zip(TARGETS, [0x7E00, 0x7FC0, 0x7FC00000, 0x7FF8000000000000], strict=True)),
    ids=lambda value: getattr(value, "name", None),
)
def test_canonical_nan(target: FloatFormat, pattern: int) -> None:
    nan = np.array(canonical_nan(target))
    assert int(nan.view(f"u{nan.itemsize}")) == pattern
