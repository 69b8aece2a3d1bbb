"""Two arrays bit by bit, against what is known of them by hand."""

import ml_dtypes
import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify import equality
from truenorm.verify.equality import difference, distances
from truenorm.verify.oracle import expected
from truenorm.verify.types import FORMATS, Array

CASE = tv.case("float32-normal-4x17")


def right() -> Array:
    found = expected(CASE).values["y"]
    assert found is not None
    return found.copy()


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
def test_distances_are_in_ulp_of_the_larger(dtype: str) -> None:
    kind = np.dtype(dtype)
    tiny = np.array([1], f"u{kind.itemsize}").view(dtype)[0]
    ulp = 2.0 ** (1 - FORMATS[kind.name].precision)
    ones = np.ones(7, dtype)
    second = np.array([1, 1 + ulp, 1 - ulp / 2, -1, np.inf, np.nan, 1], dtype)
    apart = distances(ones, second)
    assert apart.tolist() == [0, 1, 0.5, 2 / ulp, np.inf, np.inf, 0]
    zeros = np.array([0.0, 0.0, tiny], dtype)
    assert distances(zeros, np.array([-0.0, tiny, -tiny], dtype)).tolist() == [0, 1, 2]
    assert distances(second[4:6], second[4:6]).tolist() == [0, 0]
    largest = np.array([2.0 ** (FORMATS[kind.name].limit - 1)], dtype)
    assert distances(largest, -largest).tolist() == [2 / ulp]


def test_equal_bits_are_no_difference_nor_are_two_nans() -> None:
    one, other = right(), right()
    assert difference(CASE, "y", one, other) is None
    one[0, 0], other[0, 0] = np.nan, -np.float32(np.nan)
    assert one.tobytes() != other.tobytes()
    assert difference(CASE, "y", one, other) is None


def test_zeros_of_two_signs_differ_by_no_ulp() -> None:
    one, other = right(), right()
    one[1, 2], other[1, 2] = 0.0, -0.0
    found = difference(CASE, "y", one, other)
    assert found is not None
    assert (found.elements, found.ulp, found.at) == (1, 0.0, (1, 2))
    assert (found.first_nearer, found.second_nearer) == (0, 0)


def test_where_by_how_much_and_which_is_nearer() -> None:
    one, other = right(), right()
    one[2, 5] = np.nextafter(one[2, 5], np.float32(np.inf))
    other[3, 1] *= np.float32(1.5)
    other[0, 0] = np.nan
    found = difference(CASE, "y", one, other)
    assert found is not None
    assert (found.elements, found.total, found.judged) == (3, one.size, 3)
    assert (found.ulp, found.at) == (np.inf, (0, 0))
    assert found.first == found.exact == right()[0, 0]
    assert np.isnan(found.second)
    # The second is right where the first is off by an ulp; the first where the second is far off.
    assert (found.first_nearer, found.second_nearer) == (2, 1)
    assert 0.5 <= found.first_ulp <= 1.5
    assert found.second_ulp == np.inf


def test_nan_is_nearer_where_it_is_due() -> None:
    case = tv.case("float32-nan-in-x")
    exact = expected(case).values["y"]
    assert exact is not None
    at = tuple(map(int, np.argwhere(np.isnan(exact))[0]))
    other = exact.copy()
    other[at] = 0.0
    found = difference(case, "y", exact, other)
    assert found is not None
    assert (found.at, found.ulp) == (at, np.inf)
    assert (found.first_nearer, found.second_nearer) == (1, 0)


def test_shapes_and_types() -> None:
    for other, words in (
        (right()[:1], "y is float32 of shape (4, 17) from the first, float32 of shape (1, 17)"),
        (right().astype(np.float64), "y is float32 of shape (4, 17) from the first, float64"),
    ):
        found = difference(CASE, "y", right(), other)
        assert found is not None
        assert found.words.startswith(words)
    whole = np.arange(68).reshape(4, 17)
    assert difference(CASE, "y", whole, whole) is None
    found = difference(CASE, "y", whole, whole + 1)
    assert found is not None
    assert found.words.startswith("y is int64 of shape (4, 17) from both, as it should not be")
    flat = right()[0, :5]
    assert difference(CASE, "y", flat, flat.copy()) is None
    found = difference(CASE, "y", flat, flat + 1)
    assert found is not None
    assert found.words.startswith("y is float32 of shape (5,) from both, as it should not be")


def test_a_gradient_of_no_parameter_has_no_answer() -> None:
    case, *_ = (each for each in tv.cases("float32", also=["no-gamma"]) if each.gamma is None)
    one = np.ones(case.shape[1], np.float32)
    assert difference(case, "dgamma", one, one) is None
    found = difference(case, "dgamma", one, 2 * one)
    assert found is not None
    assert "as it should not be" in found.words


def test_of_large_cases_some_rows_are_held_against_exact_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(equality, "ANSWERED", 2 * 16)
    case = tv.case_of_shape((8, 16))
    exact = {name: value for name, value in expected(case).values.items() if value is not None}
    other = exact["y"] * np.float32(1.5)
    other[6, 3] *= -1
    found = difference(case, "y", exact["y"], other)
    assert found is not None
    assert (found.elements, found.judged, found.first_nearer) == (128, 32, 32)
    assert (found.at, found.exact) == ((6, 3), exact["y"][6, 3])
    found = difference(case, "dgamma", exact["dgamma"], exact["dgamma"] + 1)
    assert found is not None
    assert (found.elements, found.total, found.judged, found.exact) == (16, 16, 0, None)
    assert len(found.at) == 1
