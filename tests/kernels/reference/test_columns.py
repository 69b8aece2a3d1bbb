"""Sums over rows: exact, and what is not finite."""

from fractions import Fraction

import numpy as np
import pytest

from truenorm.exact import FLOAT32, FLOAT64, round_ratio
from truenorm.kernels.reference.columns import ExactSum
from truenorm.kernels.special import SpecialSum
from truenorm.kernels.storage import widen


@pytest.mark.parametrize("spread", [0, 30, 300, 2000])
def test_exact_sum_has_no_error(spread: int) -> None:
    """Numbers over up to 2000 powers of two, among them the largest and the smallest."""
    random = np.random.default_rng(0)
    exponents = random.integers(-min(spread, 1060), min(spread, 1000) + 1, (50, 7))
    terms = np.ldexp(random.standard_normal((50, 7)), exponents)
    terms[0] = np.finfo(float).max
    terms[1] = -terms[0]
    terms[2, ::2] = 5e-324
    total = ExactSum(7)
    for part in np.split(terms.copy(), [3, 20]):
        total.add(part)
    exact = [sum(map(Fraction, column), Fraction(0)) for column in terms.T.tolist()]
    for target in (FLOAT32, FLOAT64):
        expected = [round_ratio(value.numerator, value.denominator, target) for value in exact]
        tested = total.rounded(target)
        assert widen(tested.values, target).tolist() == expected
        assert not tested.refused.any()


def test_a_finite_sum_does_not_overflow_midway() -> None:
    total = ExactSum(1)
    total.add(np.array([[1.7e308], [1.7e308], [-1.7e308]]))
    assert total.rounded(FLOAT64).values.tolist() == [1.7e308]


def test_a_sum_of_nothing() -> None:
    assert ExactSum(2).rounded(FLOAT32).values.tolist() == [0.0, 0.0]


def test_special_sum() -> None:
    inf, nan = np.inf, np.nan
    total = SpecialSum(5)
    total.add(np.array([[inf, -inf, inf, nan, 1.0], [1.0, -inf, 1.0, inf, 2.0]]))
    total.add(np.array([[1.0, 1.0, -inf, 1.0, 3.0]]))
    sums = np.full(5, 7.0)
    total.apply(sums)
    assert np.array_equal(sums, [inf, -inf, nan, nan, 7.0], equal_nan=True)
