"""Correct rounding of ratios, against NumPy's casts and ties worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from promise.families import DTYPES
from promise.oracle import FORMATS, bits
from truenorm.exact import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FloatFormat,
    round_ratio,
    scaled_integers,
)

TARGETS = {target.name: target for target in (BFLOAT16, FLOAT16, FLOAT32, FLOAT64)}


@pytest.mark.parametrize(
    ("target", "numerator", "denominator", "expected"),
    [
        (FLOAT32, 2**24 + 1, 2**24, 1.0),  # a tie: to even, below
        (FLOAT32, 2**24 + 3, 2**24, 1 + 2**-22),  # a tie: to even, above
        (FLOAT32, 2**40 + 2**16 + 1, 2**40, 1 + 2**-23),  # just above a tie
        (FLOAT32, 1, 2**150, 0.0),  # half the smallest number: to even, zero
        (FLOAT32, 3, 2**151, 2**-149),
        (FLOAT32, 2**129 - 2**105, 2, 2.0**128 - 2.0**104),  # the largest number
        (FLOAT32, 2**129 - 2**104, 2, math.inf),  # a tie with 2**128
        (FLOAT16, 65520, 1, math.inf),
        (FLOAT16, 65519, 1, 65504.0),
        (BFLOAT16, 257, 256, 1.0),
        (BFLOAT16, 259, 256, 1 + 2**-6),
        (FLOAT64, 2**53 + 1, 1, 2.0**53),
        (FLOAT64, 1, 2**1075, 0.0),
        (FLOAT64, 3, 2**1076, 5e-324),
    ],
)
def test_by_hand(target: FloatFormat, numerator: int, denominator: int, expected: float) -> None:
    assert round_ratio(numerator, denominator, target) == expected
    mirrored = round_ratio(-numerator, denominator, target)
    assert mirrored == -expected
    assert math.copysign(1, mirrored) == -1


def test_zero_is_positive() -> None:
    assert math.copysign(1, round_ratio(0, 7, FLOAT32)) == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_against_the_judge(dtype: np.dtype[Any]) -> None:
    """Random ratios of every size, through the tests' own rounding."""
    random = np.random.default_rng(0)
    judge = FORMATS[dtype]
    for _ in range(3000):
        numerator = int(random.integers(1, 2**62)) << int(random.integers(0, 1100))
        denominator = int(random.integers(1, 2**62)) << int(random.integers(0, 1150))
        rounded = np.array(round_ratio(numerator, denominator, TARGETS[dtype.name]))
        with np.errstate(over="ignore"):
            assert bits(rounded.astype(dtype)) == judge.round_rational(
                fmpq(numerator, denominator)
            )


def test_scaled_integers() -> None:
    values = [0.0, -0.0, 5e-324, -1.5, 1.7e308]
    integers, k = scaled_integers(values)
    assert [integer / 2**k for integer in integers[:1]] == [0.0]
    assert [integer == value.as_integer_ratio()[0] * 2**k // value.as_integer_ratio()[1]
            for integer, value in zip(integers, values, strict=True)] == [True] * 5  # fmt: skip
    assert scaled_integers([]) == ([], 0)
