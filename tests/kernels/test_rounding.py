"""Rounding of float64 and of scaled pairs, against exact ratios."""

import math
from fractions import Fraction

import numpy as np
import pytest

from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, FloatFormat, round_ratio
from truenorm.kernels.double_double import two_sum
from truenorm.kernels.rounding import canonical_nan, round_pair, round_to, same_roundings
from truenorm.kernels.storage import widen

TARGETS = [FLOAT16, BFLOAT16, FLOAT32, FLOAT64]


def same(got: float, expected: float) -> bool:
    return got == expected and math.copysign(1, got) == math.copysign(1, expected)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_round_to(target: FloatFormat) -> None:
    random = np.random.default_rng(0)
    values = random.standard_normal(3000) * 2.0 ** random.integers(-200, 200, 3000)
    halfway = np.rint(values[:1500] * 2.0**9) / 2.0**9  # ties of the narrow types
    special = [1 + 2.0**-8 + 2.0**-40, 3.4e38, 65519.999, 65520.0, 1e300, 5e-324, -1e-300]
    values = np.concatenate([values, halfway, special])
    with np.errstate(all="ignore"):
        rounded = widen(round_to(values, target), target)
    for value, got in zip(values.tolist(), rounded.tolist(), strict=True):
        if value:
            numerator, denominator = value.as_integer_ratio()
            assert same(got, round_ratio(numerator, denominator, target)), value


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_round_pair(target: FloatFormat) -> None:
    random = np.random.default_rng(1)
    count = 4000
    quantum = 2.0 ** -random.integers(6, 54, count)
    high = np.rint(random.standard_normal(count) / quantum) * quantum
    high[: count // 4] = 2.0 ** random.integers(-3, 3, count // 4)  # where the last place changes
    high[high == 0] = 1.0
    shares = [0, 0.5, -0.5, 0.25, -0.25, 0.1, -0.3, 2.0**-40, -(2.0**-40), 1e-300]
    high, low = two_sum(high, np.spacing(np.abs(high)) * random.choice(shares, count))
    small = [0, -1, -14, -24, -25, -126, -133, -149, -151, -1022, -1060, -1074, -1076, -3000]
    large = [1, 15, 16, 127, 128, 1022, 1023, 1024, 3000]
    exponents = random.choice([*small, *large], count)
    with np.errstate(all="ignore"):
        rounded = widen(round_pair(high, low, exponents, target), target)
    for h, l, e, got in zip(high, low, exponents, rounded, strict=True):  # noqa: E741
        exact = (Fraction(float(h)) + Fraction(float(l))) * Fraction(2) ** int(e)
        expected = round_ratio(exact.numerator, exact.denominator, target)
        assert same(float(got), expected), (h, l, e)


def test_same_roundings_compares_bits() -> None:
    zeros = np.array([0.0, -0.0, np.inf], np.float32)
    tested = same_roundings(zeros, np.array([0.0, 0.0, np.inf], np.float32))
    assert tested.refused.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("target", "pattern"),
    [
        (FLOAT16, 0x7E00),
        (BFLOAT16, 0x7FC0),
        (FLOAT32, 0x7FC00000),
        (FLOAT64, 0x7FF8000000000000),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_canonical_nan(target: FloatFormat, pattern: int) -> None:
    nan = np.array(canonical_nan(target))
    assert int(nan.view(f"u{nan.itemsize}")) == pattern
