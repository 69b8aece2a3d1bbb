"""Exact integers: rounding of ratios, rows and sums of roots, with the oracle and by hand."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from shared.promise.families import DTYPES, cases
from shared.promise.oracle import FORMATS, bits, correct_backward, correct_forward
from truenorm.exact import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    ExactRow,
    FloatFormat,
    InverseRoot,
    RowGradient,
    Term,
    centred_signs,
    round_ratio,
    round_sum_of_roots,
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
def test_round_ratio(
    target: FloatFormat, numerator: int, denominator: int, expected: float
) -> None:
    assert round_ratio(numerator, denominator, target) == expected
    mirrored = round_ratio(-numerator, denominator, target)
    assert mirrored == -expected
    assert math.copysign(1, mirrored) == -1


def test_zero_is_positive() -> None:
    assert math.copysign(1, round_ratio(0, 7, FLOAT32)) == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_ratio_equals_the_oracle(dtype: np.dtype[Any]) -> None:
    """Round random ratios of every magnitude."""
    random = np.random.default_rng(0)
    oracle = FORMATS[dtype]
    for _ in range(3000):
        numerator = int(random.integers(1, 2**62)) << int(random.integers(0, 1100))
        denominator = int(random.integers(1, 2**62)) << int(random.integers(0, 1150))
        rounded = np.array(round_ratio(numerator, denominator, TARGETS[dtype.name]))
        with np.errstate(over="ignore"):
            pattern = bits(rounded.astype(dtype))
        assert pattern == oracle.round_rational(fmpq(numerator, denominator))


def test_scaled_integers() -> None:
    values = [0.0, -0.0, 5e-324, -1.5, 1.7e308]
    integers, k = scaled_integers(values)
    assert [integer / 2**k for integer in integers[:1]] == [0.0]
    assert [integer == value.as_integer_ratio()[0] * 2**k // value.as_integer_ratio()[1]
            for integer, value in zip(integers, values, strict=True)] == [True] * 5  # fmt: skip
    assert scaled_integers([]) == ([], 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_equal_the_oracle(dtype: np.dtype[Any]) -> None:
    """Compute rows with tier 3 alone, which tier 1 would decide."""
    target, compared = TARGETS[dtype.name], 0
    for case in cases(dtype, 3000):
        x = case.x[:2].astype(np.float64)
        if x.shape[1] > 70 or case.rows(slice(2)).has_undefined_rows:
            continue
        gamma, beta = (values.astype(np.float64).tolist() for values in case.parameters)
        dy = case.dy[:2].astype(np.float64)
        rows = [ExactRow(row.tolist(), case.eps) for row in x]
        columns = range(x.shape[1])
        y = [[row.y(j, gamma[j], beta[j], target) for j in columns] for row in rows]
        gradients = [
            RowGradient(row, scaled_integers(gamma), dy_row.tolist())
            for row, dy_row in zip(rows, dy, strict=True)
        ]
        dx = [[gradient.dx(j, target) for j in columns] for gradient in gradients]
        with np.errstate(over="ignore"):
            y_bits, dx_bits = (bits(np.array(values).astype(dtype)) for values in (y, dx))
        expected_y = correct_forward(case.x[:2], case.gamma, case.beta, case.eps)
        expected_dx = correct_backward(case.dy[:2], case.x[:2], case.gamma, case.beta, case.eps)[0]
        assert y_bits.tolist() == bits(expected_y).tolist(), str(case)
        assert dx_bits.tolist() == bits(expected_dx).tolist(), str(case)
        compared += y_bits.size
    assert compared > 500


def test_tie() -> None:
    """With x = (1, -1) and eps = 8, r is 1/3, and 3*xhat + 2**-24 is a tie."""
    row = ExactRow([1.0, -1.0], 8.0)
    assert row.root.rational == (24, 72)
    assert row.y(0, 3.0, 2.0**-24, FLOAT32) == 1.0
    assert row.y(0, 3.0, 3 * 2.0**-24, FLOAT32) == 1 + 2.0**-22


@pytest.mark.parametrize(("direction", "expected"), [(np.inf, 1.0), (-np.inf, 1 + 2.0**-23)])
def test_eps_one_ulp_from_a_tie(direction: float, expected: float) -> None:
    """A larger eps makes r smaller and y less than the tie; r is irrational in both cases."""
    eps = float(np.nextafter(8.0, direction))
    row = ExactRow([1.0, -1.0], eps)
    assert row.root.rational is None
    assert row.y(0, 3.0, 2.0**-24, FLOAT32) == expected


def test_refinement_to_thousands_of_bits() -> None:
    """An eps of 5e-324 moves xhat by 2**-1075 from 1."""
    assert ExactRow([1.0, -1.0], 5e-324).y(0, 1.0, 2.0**-53, FLOAT64) == 1.0
    assert ExactRow([1.0, -1.0], 5e-324).y(0, 1.0, 3 * 2.0**-53, FLOAT64) == 1 + 2.0**-52


def test_centred_signs() -> None:
    assert centred_signs([1.0, 2.0, 3.0]) == [-1, 0, 1]
    assert centred_signs([1e308, 1e308, np.nextafter(1e308, 0)]) == [1, 1, -1]


def inverse_root(w: Fraction | int) -> InverseRoot:
    w = Fraction(w)
    return InverseRoot(w.numerator, w.denominator)


def term(coefficient: Fraction | int, w: Fraction | int) -> Term:
    coefficient = Fraction(coefficient)
    return Term(coefficient.numerator, coefficient.denominator, inverse_root(w))


def test_sum_of_rational_roots() -> None:
    """1/2 + 1/3 + 1/6 = 1, from roots of 4, 9 and 36."""
    assert round_sum_of_roots([term(1, 4), term(1, 9), term(1, 36)], FLOAT32) == 1.0
    tie = [term(1, 4), term(1, 9), term(1, 36), term(Fraction(1, 2**24), 1)]
    assert round_sum_of_roots(tie, FLOAT32) == 1.0


def test_class_that_cancels() -> None:
    """1/sqrt(2) - 2/sqrt(8) = 0: one class, rational ratio 2."""
    assert round_sum_of_roots([term(1, 2), term(-2, 8)], FLOAT64) == 0.0
    remainder = [term(1, 2), term(-2, 8), term(Fraction(-1, 3), 1)]
    assert round_sum_of_roots(remainder, FLOAT64) == -1 / 3


def test_classes_that_nearly_cancel() -> None:
    """1/sqrt(w) - 1/sqrt(w + 2**-900) is about 2**-901, not zero."""
    tiny = Fraction(1, 2**900)
    difference = round_sum_of_roots([term(1, 2), term(-1, 2 + tiny)], FLOAT64)
    assert difference == np.ldexp(np.sqrt(0.5) / 4, -900)


def test_fingerprints_of_a_class_are_equal() -> None:
    for square in (4, 9, 49, 121, 3**2 * 5**2):
        same = inverse_root(6).fingerprint, inverse_root(6 * square).fingerprint
        assert same[0] == same[1]
    assert inverse_root(2).fingerprint != inverse_root(3).fingerprint


def test_no_terms_and_zero_terms() -> None:
    assert round_sum_of_roots([], FLOAT32) == 0.0
    assert round_sum_of_roots([term(0, 2)], FLOAT32) == 0.0
