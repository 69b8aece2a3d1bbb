"""dbeta is summed in float64 where that is exact, and in integers only where it is not."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from kernels.calls import format_for
from promise.families import DTYPES, Array
from promise.oracle import FORMATS
from truenorm.exact import FLOAT32, FLOAT64
from truenorm.kernels import rounding
from truenorm.kernels.fixed_point import FixedPointSum
from truenorm.kernels.reference.columns import CertifiedSum


def summed(terms: Array, *edges: int) -> CertifiedSum:
    """Add blocks of rows that begin at the edges."""
    total = CertifiedSum(terms.shape[1], format_for(terms))
    for block in np.split(terms.astype(np.float64), edges):
        total.add(block)
    return total


def rounded(terms: Array, *edges: int) -> rounding.Tested:
    with np.errstate(all="ignore"):
        return summed(terms, *edges).rounded(FLOAT64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_accepted_is_exact(dtype: np.dtype[Any]) -> None:
    """Column after column, every second row is half as large as before."""
    terms = np.random.default_rng(0).uniform(1, 2, (5, 60))
    terms[::2] *= -(2.0 ** -np.arange(60))
    terms = terms.astype(dtype)
    found = rounded(terms, 1, 3)
    for column, value, refused in zip(terms.T, found.values, found.undecided, strict=True):
        exact = sum(map(Fraction, column.astype(np.float64).tolist()), Fraction(0))
        assert refused or Fraction(float(value)) == exact
    # The sizes add up to something between 2 and 4 and a little, and the smallest is 1 to 2 times
    # 2**-j: the test needs 1 to 3 bits beside the j. float16 has no numbers so small.
    left = 53 - format_for(terms).precision
    expected = range(60, 61) if dtype == np.float16 else range(max(0, left - 2), left + 2)
    assert np.count_nonzero(~found.undecided) in expected


@pytest.mark.parametrize(("largest", "refused"), [(2**29 - 32, False), (2**29, True)])
def test_as_far_as_float64_reaches(largest: int, refused: bool) -> None:
    """float32 numbers from 1 on may be odd multiples of 2**-23, and the sum may reach 2**29."""
    terms = np.array([[largest], [1.0]], np.float32)
    assert rounded(terms).undecided.tolist() == [refused]
    assert rounded(terms, 1).undecided.tolist() == [refused]


def test_zeros_are_multiples_of_everything() -> None:
    terms = np.array([[0, 3, -0.0, 1], [7, 0, -0.0, -1], [0, 4, -0.0, 0]], np.float32)
    for found in (rounded(terms), rounded(terms, 1), rounded(terms, 1, 2)):
        assert not found.undecided.any()
        assert found.values.tolist() == [7, 7, 0, 0]
        assert not np.signbit(found.values).any(), "an exact zero is +0"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_row_is_its_own_sum(dtype: np.dtype[Any]) -> None:
    form = FORMATS[dtype]
    smallest, largest = 1, form.infinity - 1
    patterns = [[smallest, largest, largest // 2, form.minus | largest, form.minus | smallest]]
    terms = np.array(patterns, form.storage).view(dtype)
    found = rounded(terms)
    assert not found.undecided.any()
    assert found.values.tolist() == terms[0].astype(np.float64).tolist()


def test_a_sum_that_overflows_is_refused() -> None:
    terms = np.array([[1.7e308], [1.7e308], [-1.7e308]])
    assert rounded(terms).undecided.all()
    assert rounded(terms, 1, 2).undecided.all()


def test_merged_sums_are_those_of_all_rows() -> None:
    terms = np.random.default_rng(0).standard_normal((9, 50)).astype(np.float32)
    terms[4:, ::4] *= np.float32(2.0**-40)  # alone, either part is exact in every column
    terms[4:, 1::4] *= np.float32(2.0**40)
    whole, merged = summed(terms), summed(terms[:4])
    merged.merge(summed(terms[4:]))
    for left, right in zip(whole.rounded(FLOAT32), merged.rounded(FLOAT32), strict=True):
        assert left.tobytes() == right.tobytes()
    assert whole.rounded(FLOAT32).undecided.tolist() == [j % 4 < 2 for j in range(50)]


@pytest.fixture
def columns_in_integers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect how many columns of dbeta each look in integers is for."""
    seen: list[int] = []
    original = FixedPointSum.add

    def noted(self: FixedPointSum, terms: Array) -> None:
        seen.append(terms.shape[1])
        original(self, terms)

    monkeypatch.setattr(FixedPointSum, "add", noted)
    return seen


def dbeta_of(dy: Array) -> Array:
    x = np.random.default_rng(0).standard_normal(dy.shape).astype(dy.dtype)
    ones = np.ones(dy.shape[1], dy.dtype)
    _, saved = tn.layer_norm_forward(x, ones, ones, backend="reference")
    dbeta = tn.layer_norm_backward(dy, saved, backend="reference").dbeta
    assert dbeta is not None
    return dbeta


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1024), (32, 1024), (256, 64)])
def test_normal_data_needs_no_integers(
    shape: tuple[int, int], dtype: np.dtype[Any], columns_in_integers: list[int]
) -> None:
    """But for float64, whose sums over several rows are rounded."""
    dy = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    dbeta_of(dy)
    expected = [shape[1]] if dtype == np.float64 and shape[0] > 1 else []
    assert sorted(set(columns_in_integers)) == expected


def test_integers_see_their_columns_alone(columns_in_integers: list[int]) -> None:
    """The first column lies beside a tie that float64 would take for one; the third has none."""
    dy = np.ones((3, 4), np.float32)
    dy[:, 0] = 1, 2.0**-24, 2.0**-80
    dy[1, 2] = np.inf
    dy[:, 3] = -1, -(2.0**-24), -(2.0**-80)
    edge = 1 + 2.0**-23
    assert dbeta_of(dy).tolist() == [edge, 3.0, np.inf, -edge]
    assert columns_in_integers == [2]
