"""Sums in digits have no error, and pairs made of them round as they do."""

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("numba")

from promise.families import Array
from promise.formats import FORMATS
from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, round_ratio
from truenorm.kernels.fused.blocks import coded
from truenorm.kernels.fused.columns import places_of
from truenorm.kernels.fused.compiled.columns.exact_columns import (
    BITS,
    LOWEST,
    add_digits,
    as_pairs,
)
from truenorm.kernels.storage import stored_view

TARGETS = {target.name: target for target in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)}


def digits_of(terms: Array, *, narrow: bool, parts: int = 1) -> tuple[int, Array]:
    target = TARGETS[terms.dtype.name]
    first, end = places_of(narrow=narrow)
    total = np.zeros((end - first, terms.shape[1]), np.int64)
    for part in np.array_split(coded(stored_view(terms, target), target), parts):
        digits = np.zeros_like(total)
        add_digits(part, np.arange(terms.shape[1]), first, digits)
        total += digits
    return first, total


def value_of(first: int, digits: Any) -> Fraction:
    places = (Fraction(2) ** (BITS * (first + k) + LOWEST) for k in range(len(digits)))
    terms = (int(digit) * place for digit, place in zip(digits, places, strict=True))
    return sum(terms, Fraction(0))


def exact_sums(terms: Array) -> list[Fraction]:
    rows = terms.astype(np.float64).T.tolist()
    return [sum(map(Fraction, row), Fraction(0)) for row in rows]


def difficult(dtype: Any, spread: int, seed: int) -> Array:
    """Return terms over many powers of two, among them the largest and the smallest."""
    random = np.random.default_rng(seed)
    form = FORMATS[np.dtype(dtype)]
    top = form.quantum + 2 ** (form.width - form.precision) + form.precision - 8  # of 4 sigma
    middle = (form.quantum + top) // 2
    exponents = random.integers(
        max(form.quantum, middle - spread), min(top, middle + spread) + 1, (60, 9)
    )
    terms = np.ldexp(random.standard_normal((60, 9)), exponents).astype(dtype)
    largest = np.array(form.infinity - 1, form.storage).view(dtype)
    smallest = np.array(1, form.storage).view(dtype)
    terms[0], terms[1] = largest, -largest
    terms[2, ::2] = smallest
    terms[2, 7] = -smallest
    terms[3:, 7:] = 0  # so that of two sums only the smallest number is left
    return terms


@pytest.mark.parametrize("spread", [1, 30, 300, 2000])
@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64], ids=lambda d: d.__name__
)
def test_digits_have_no_error(dtype: Any, spread: int) -> None:
    terms = difficult(dtype, spread, spread)
    for parts in (1, 4):
        first, digits = digits_of(terms, narrow=dtype is not np.float64, parts=parts)
        assert [value_of(first, column) for column in digits.T] == exact_sums(terms)


@pytest.mark.parametrize("spread", [1, 30, 300, 2000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda d: d.__name__)
def test_pairs_round_as_the_sums_do(dtype: Any, spread: int) -> None:
    terms = np.hstack([difficult(dtype, spread, seed) for seed in range(20)])
    first, digits = digits_of(terms, narrow=dtype is not np.float64)
    columns = terms.shape[1]
    high, low, exponents = np.empty(columns), np.empty(columns), np.empty(columns, np.int64)
    as_pairs(first, digits, high, low, exponents)
    for j, exact in enumerate(exact_sums(terms)):
        pair = (Fraction(high[j]) + Fraction(low[j])) * Fraction(2) ** int(exponents[j])
        assert (pair > 0, pair < 0) == (exact > 0, exact < 0)
        for target in TARGETS.values():
            expected = round_ratio(exact.numerator, exact.denominator, target)
            assert round_ratio(pair.numerator, pair.denominator, target) == expected


@pytest.mark.parametrize("side", [-1, 0, 1])
@pytest.mark.parametrize("power", [-1000, -300, 0, 300, 900])
def test_beside_a_tie(side: int, power: int) -> None:
    """A tie of float64 and of float32, and 2**-1074 more or less: far below three digits."""
    midpoints = np.ldexp([[2.0**52 + 1, 2.0**24], [0.5, 1.0]], power)
    terms = np.vstack([midpoints, np.full((1, 2), side * 5e-324)])
    first, digits = digits_of(terms, narrow=False)
    high, low, exponents = np.empty(2), np.empty(2), np.empty(2, np.int64)
    as_pairs(first, digits, high, low, exponents)
    for j, (target, exact) in enumerate(zip((FLOAT64, FLOAT32), exact_sums(terms), strict=True)):
        pair = (Fraction(high[j]) + Fraction(low[j])) * Fraction(2) ** int(exponents[j])
        expected = round_ratio(exact.numerator, exact.denominator, target)
        assert round_ratio(pair.numerator, pair.denominator, target) == expected


def test_what_is_not_finite_is_left_out() -> None:
    terms = np.array([[1.0, np.inf], [np.nan, 2.0], [-np.inf, 3.0]])
    first, digits = digits_of(terms, narrow=False)
    assert [value_of(first, column) for column in digits.T] == [1, 5]


def test_digits_do_not_overflow_in_so_many_rows_as_allowed() -> None:
    """A digit has 32 bits, and 2**31 of them fit into the 63 of an int64."""
    terms = np.full((1, 1), np.nextafter(2.0, 0))
    _, digits = digits_of(terms, narrow=False)
    assert int(digits.max()) < 2**BITS
    assert 2**31 * (2**BITS - 1) < 2**63
