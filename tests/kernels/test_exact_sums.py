"""Sums over rows in digits, in NumPy and compiled: no error, and rounded as they should be."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from promise.families import DTYPES, Array
from promise.formats import FORMATS
from promise.judging import BACKENDS
from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, FloatFormat, round_ratio
from truenorm.kernels.lattice.digits import Digits
from truenorm.kernels.special import SpecialSum
from truenorm.kernels.storage import stored_view, widen

if "fused" in BACKENDS:
    from truenorm.kernels.fused.blocks import coded
    from truenorm.kernels.fused.compiled.columns.exact_columns import (
        BITS,
        LOWEST,
        add_digits,
        as_pairs,
    )
    from truenorm.kernels.fused.sums.columns import places_of

needs_numba = pytest.mark.skipif("fused" not in BACKENDS, reason="needs Numba")
of_each_spread = pytest.mark.parametrize("spread", [1, 30, 300, 2000])
TARGETS = {target.name: target for target in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)}


def exact_sums(terms: Array) -> list[Fraction]:
    rows = terms.astype(np.float64).T.tolist()
    return [sum(map(Fraction, row), Fraction(0)) for row in rows]


def difficult(dtype: np.dtype[Any], spread: int, seed: int) -> Array:
    """Return terms over many powers of two, among them the largest and the smallest."""
    random = np.random.default_rng(seed)
    form = FORMATS[dtype]
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


def rounded(exact: Fraction, target: FloatFormat) -> float:
    return round_ratio(exact.numerator, exact.denominator, target)


@of_each_spread
def test_sums_of_the_reference(spread: int) -> None:
    terms = difficult(DTYPES[3], spread, spread)
    total = Digits(terms.shape[1])
    for part in np.split(terms.copy(), [3, 20]):
        total.add(part)
    for target in (FLOAT32, FLOAT64):
        tested = total.rounded(target)
        expected = [rounded(exact, target) for exact in exact_sums(terms)]
        assert widen(tested.values, target).tolist() == expected
        assert not tested.refused.any()


def test_a_finite_sum_does_not_overflow_midway() -> None:
    total = Digits(1)
    total.add(np.array([[1.7e308], [1.7e308], [-1.7e308]]))
    assert total.rounded(FLOAT64).values.tolist() == [1.7e308]


def test_a_sum_of_nothing() -> None:
    assert Digits(2).rounded(FLOAT32).values.tolist() == [0.0, 0.0]


def test_special_sum() -> None:
    inf, nan = np.inf, np.nan
    total = SpecialSum(5)
    total.add(np.array([[inf, -inf, inf, nan, 1.0], [1.0, -inf, 1.0, inf, 2.0]]))
    total.add(np.array([[1.0, 1.0, -inf, 1.0, 3.0]]))
    sums = np.full(5, 7.0)
    total.apply(sums)
    assert np.array_equal(sums, [inf, -inf, nan, nan, 7.0], equal_nan=True)


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


def pairs_of(first: int, digits: Any) -> list[Fraction]:
    """Return what the pairs that are made of digits stand for."""
    columns = digits.shape[1]
    high, low, exponents = np.empty(columns), np.empty(columns), np.empty(columns, np.int64)
    as_pairs(first, digits, high, low, exponents)
    made = zip(high.tolist(), low.tolist(), exponents.tolist(), strict=True)
    return [(Fraction(h) + Fraction(rest)) * Fraction(2) ** power for h, rest, power in made]


@needs_numba
@of_each_spread
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_digits_have_no_error(dtype: np.dtype[Any], spread: int) -> None:
    terms = difficult(dtype, spread, spread)
    for parts in (1, 4):
        first, digits = digits_of(terms, narrow=dtype != np.float64, parts=parts)
        assert [value_of(first, column) for column in digits.T] == exact_sums(terms)


@needs_numba
@of_each_spread
@pytest.mark.parametrize("dtype", DTYPES[2:], ids=str)
def test_pairs_round_as_the_sums_do(dtype: np.dtype[Any], spread: int) -> None:
    terms = np.hstack([difficult(dtype, spread, seed) for seed in range(20)])
    first, digits = digits_of(terms, narrow=dtype != np.float64)
    for pair, exact in zip(pairs_of(first, digits), exact_sums(terms), strict=True):
        assert (pair > 0, pair < 0) == (exact > 0, exact < 0)
        for target in TARGETS.values():
            assert rounded(pair, target) == rounded(exact, target)


@needs_numba
@pytest.mark.parametrize("side", [-1, 0, 1])
@pytest.mark.parametrize("power", [-1000, -300, 0, 300, 900])
def test_beside_a_tie(side: int, power: int) -> None:
    """A tie of float64 and of float32, and 2**-1074 more or less: far below three digits."""
    midpoints = np.ldexp([[2.0**52 + 1, 2.0**24], [0.5, 1.0]], power)
    terms = np.vstack([midpoints, np.full((1, 2), side * 5e-324)])
    first, digits = digits_of(terms, narrow=False)
    pairs = zip((FLOAT64, FLOAT32), pairs_of(first, digits), exact_sums(terms), strict=True)
    for target, pair, exact in pairs:
        assert rounded(pair, target) == rounded(exact, target)


@needs_numba
def test_what_is_not_finite_is_left_out() -> None:
    terms = np.array([[1.0, np.inf], [np.nan, 2.0], [-np.inf, 3.0]])
    first, digits = digits_of(terms, narrow=False)
    assert [value_of(first, column) for column in digits.T] == [1, 5]


@needs_numba
def test_digits_do_not_overflow_in_so_many_rows_as_allowed() -> None:
    """A digit has 32 bits, and 2**31 of them fit into the 63 of an int64."""
    terms = np.full((1, 1), np.nextafter(2.0, 0))
    _, digits = digits_of(terms, narrow=False)
    assert int(digits.max()) < 2**BITS
    assert 2**31 * (2**BITS - 1) < 2**63
