"""Sums over rows in digits: no error, and rounded as they should be."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from promise.families import DTYPES, Array
from promise.oracle import FORMATS
from truenorm.exact import FLOAT32, FLOAT64, FloatFormat, round_ratio
from truenorm.kernels.fixed_point import FixedPointSum
from truenorm.kernels.rows import widen
from truenorm.kernels.special import SpecialSum

of_each_spread = pytest.mark.parametrize("spread", [1, 30, 300, 2000])


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
    total = FixedPointSum(terms.shape[1])
    for part in np.split(terms.copy(), [3, 20]):
        total.add(part)
    for target in (FLOAT32, FLOAT64):
        tested = total.rounded(target)
        expected = [rounded(exact, target) for exact in exact_sums(terms)]
        assert widen(tested.values, target).tolist() == expected
        assert not tested.undecided.any()


def test_a_finite_sum_does_not_overflow_midway() -> None:
    total = FixedPointSum(1)
    total.add(np.array([[1.7e308], [1.7e308], [-1.7e308]]))
    assert total.rounded(FLOAT64).values.tolist() == [1.7e308]


def test_a_sum_of_nothing() -> None:
    assert FixedPointSum(2).rounded(FLOAT32).values.tolist() == [0.0, 0.0]


def test_special_sum() -> None:
    inf, nan = np.inf, np.nan
    total = SpecialSum(5)
    total.add(np.array([[inf, -inf, inf, nan, 1.0], [1.0, -inf, 1.0, inf, 2.0]]))
    total.add(np.array([[1.0, 1.0, -inf, 1.0, 3.0]]))
    sums = np.full(5, 7.0)
    total.apply(sums)
    assert np.array_equal(sums, [inf, -inf, nan, nan, 7.0], equal_nan=True)
