"""Sums of known depth keep within depth*u*sum|terms|."""

from fractions import Fraction

import numpy as np
import pytest

from truenorm.kernels.reference.tier1 import column_sums, depth_of_sum, row_sums

U = Fraction(1, 2**53)


@pytest.mark.parametrize("count", [1, 2, 3, 17, 63, 64, 65, 67, 513, 1000, 4099])
def test_error_is_within_the_depth(count: int) -> None:
    terms = np.random.default_rng(count).standard_normal((3, count))
    terms[1] += 1e6
    rows, columns = row_sums(terms), column_sums(terms.T.copy())
    assert rows.shape == (3, 1)
    assert columns.shape == (3,)
    for row, by_row, by_column in zip(terms.tolist(), rows[:, 0], columns, strict=True):
        exact = sum(map(Fraction, row), Fraction(0))
        bound = depth_of_sum(count) * U * sum(map(abs, map(Fraction, row)))
        assert abs(Fraction(float(by_row)) - exact) <= bound
        assert abs(Fraction(float(by_column)) - exact) <= bound


def test_depth_is_logarithmic() -> None:
    depths = [depth_of_sum(count) for count in (1, 2, 3, 64, 1024, 4096, 2**20)]
    assert depths == [0, 1, 2, 11, 15, 17, 25]


def test_terms_are_left_alone() -> None:
    terms = np.ones((10, 200))
    terms.flags.writeable = False
    assert row_sums(terms).tolist() == [[200.0]] * 10
    assert column_sums(terms).tolist() == [10.0] * 200
