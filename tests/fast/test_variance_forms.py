"""The four variance algorithms, and the rows on which each loses accuracy."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.exact_row import ExactRow, fractions
from truenorm import variance_forms
from truenorm.variance_forms import corrected_two_pass, one_pass, two_pass, welford

Variance = Callable[[NDArray[np.floating]], NDArray[np.floating]]

FORMS = [one_pass, two_pass, corrected_two_pass, welford]


def exact(row: NDArray[np.floating]) -> float:
    return float(ExactRow.of(fractions(row), Fraction(0)).w)


@pytest.mark.parametrize("offset", [1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14])
def test_variance_table(offset: float) -> None:
    """[0, 1, 2, 3, 4] + offset has variance 2; docs/learn/stability.md shows this table."""
    row = np.arange(5.0) + offset
    assert exact(row) == 2.0
    assert one_pass(row) == (2.0 if offset <= 1e8 else 0.0)
    assert two_pass(row) == corrected_two_pass(row) == 2.0
    assert welford(row) == 2.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 2, 3, 17, 1000])
def test_all_agree_where_nothing_cancels(form: Variance, size: int) -> None:
    rows = np.random.default_rng(0).standard_normal((2, 3, size))
    expected = [exact(row) for row in rows.reshape(-1, size)]
    result = form(rows)
    assert result.shape == (2, 3)
    scale = (rows**2).mean(axis=-1).max()
    # Welford's 1000 dependent updates are the longest chain of roundings here.
    assert np.abs(result.ravel() - expected).max() <= size * 2.0**-52 * scale


def test_one_pass_can_be_negative() -> None:
    """Its square root is NaN; the row is that of onnxruntime#28463."""
    row = np.array([40000, 40001, 40002, 40003], dtype=np.float32)
    assert exact(row) == 1.25
    assert one_pass(row) == -128.0
    assert min(two_pass(row), corrected_two_pass(row), welford(row)) >= 0


def test_correction_removes_the_error_of_the_mean() -> None:
    """The rounding error of the mean, 10000000.67, is comparable to the standard deviation."""
    row = np.array([1e7, 1e7 + 1, 1e7 + 1], dtype=np.float32)
    assert corrected_two_pass(row) == pytest.approx(2 / 9, rel=2**-22)
    assert two_pass(row) == pytest.approx(2 / 3, rel=2**-22)


def test_public_names() -> None:
    assert {form.__name__ for form in FORMS} == set(variance_forms.__all__)
