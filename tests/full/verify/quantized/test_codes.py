"""Code types: values, rounding, cells, steps and packing by ml_dtypes and by fractions."""

from bisect import bisect_left
from fractions import Fraction
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from shared.verify.quantized.balls import codes_of, values_of
from shared.verify.quantized.kernels import DTYPES, LARGEST, Array
from truenorm.verify.norms.codes import CODE_TYPES, E8M0, packed, unpacked, unswizzled
from truenorm.verify.norms.quant import Quant

KINDS = list(CODE_TYPES)
FLOATS = [kind for kind in KINDS if kind != "int8"]


def all_codes(kind: str) -> Array:
    return np.arange(16 if kind == "e2m1" else 256, dtype=np.uint8)


def decoded(kind: str) -> Array:
    """Return the value of every code by ml_dtypes."""
    dtype = np.int8 if kind == "int8" else DTYPES[kind]
    return np.asarray(all_codes(kind).view(dtype).astype(np.float64))


def rounded(number: float, values: list[Fraction], codes: dict[Fraction, int]) -> float:
    """Round to the nearest of some values by fractions, ties to even codes."""
    place = bisect_left(values, number)
    near, exact = values[max(place - 1, 0) : place + 1], Fraction(number)
    return float(min(near, key=lambda each: (abs(each - exact), codes[each] & 1)))


def numbers_around(kind: str, dtype: str = "float64") -> Array:
    """Return values, midpoints, their neighbours in a type, and numbers of many sizes."""
    values = np.array([float(each) for each in values_of(kind)])
    middles = (values[1:] + values[:-1]) / 2
    points = np.concatenate([values, middles]).astype(dtype)
    largest = LARGEST[kind]
    beyond = largest * np.array([1.001, 1.03, 1.07, 1.2, 2, 3, 1e10, 1e30])
    random = np.random.default_rng(5)
    wide = np.ldexp(random.uniform(-1, 1, 400), random.integers(-30, 20, 400))
    ends = np.array([[-np.inf], [np.inf]], dtype)
    every = [points, *np.nextafter(points, ends), beyond, -beyond, wide, [1e-44, -1e-44]]
    return np.concatenate(every).astype(dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_ml_dtypes(kind: str) -> None:
    values = CODE_TYPES[kind].decode(all_codes(kind))
    np.testing.assert_array_equal(values, decoded(kind))  # NaN equals NaN
    finite = np.isfinite(values)
    assert (np.signbit(values) == np.signbit(decoded(kind)))[finite].all()


def test_powers_are_those_of_ml_dtypes() -> None:
    codes = np.arange(256, dtype=np.uint8)
    expected = codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    np.testing.assert_array_equal(E8M0.decode(codes), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_each_value_has_its_code(kind: str) -> None:
    codes, values = all_codes(kind), decoded(kind)
    encoded = CODE_TYPES[kind].encode(values)
    is_nan = np.isnan(values)
    np.testing.assert_array_equal(encoded[~is_nan], codes[~is_nan])
    assert np.isnan(decoded(kind)[encoded[is_nan]]).all()


@pytest.mark.parametrize("kind", FLOATS)
def test_rounds_as_ml_dtypes_does(kind: str) -> None:
    # float32 numbers: ml_dtypes rounds float64 numbers twice. It does not saturate.
    numbers = np.concatenate([numbers_around(kind, "float32"), np.array([0.0, -0.0], np.float32)])
    inside = np.clip(numbers, -LARGEST[kind], LARGEST[kind])
    expected = inside.astype(DTYPES[kind])
    values = CODE_TYPES[kind].nearest(numbers.astype(np.float64))
    np.testing.assert_array_equal(values, expected.astype(np.float64))
    np.testing.assert_array_equal(
        CODE_TYPES[kind].encode(values), expected.view(np.uint8) & (len(all_codes(kind)) - 1)
    )


@pytest.mark.parametrize(
    ("kind", "largest"), [*LARGEST.items(), ("e4m3fnuz", 224.0), ("e4m3fn", 240.0)]
)
def test_rounds_as_fractions_do(kind: str, largest: float) -> None:
    code = CODE_TYPES[kind]
    if largest != code.largest:
        code = Quant(kind, scale="per-token", qmax=largest).code
    numbers = numbers_around(kind)
    values = [each for each in values_of(kind) if abs(each) <= largest]
    expected = [rounded(each, values, codes_of(kind)) for each in numbers.tolist()]
    np.testing.assert_array_equal(code.nearest(numbers), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_nan_stays_and_infinity_saturates(kind: str) -> None:
    code = CODE_TYPES[kind]
    rounded_values = code.nearest(np.array([np.nan, np.inf, -np.inf]))
    np.testing.assert_array_equal(rounded_values, [np.nan, code.largest, -code.largest])


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_has_the_numbers_that_round_to_its_value(kind: str) -> None:
    code, values = CODE_TYPES[kind], values_of(kind)
    inside = [each for each in values if abs(each) <= code.largest]
    low, high = code.cells(np.array([float(each) for each in inside]))
    middles = [float((a + b) / 2) for a, b in pairwise(inside)]
    np.testing.assert_array_equal(low, [-np.inf, *middles])
    np.testing.assert_array_equal(high, [*middles, np.inf])


def test_cells_of_special_codes() -> None:
    low, high = CODE_TYPES["int8"].cells(np.array([-128.0, np.nan, np.inf]))
    # -128 is no rounded result; it stands for numbers that are nearer to it than to -127.
    np.testing.assert_array_equal(low, [-np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(high, [-127.5, np.nan, np.nan])


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_distances_of_neighbours(kind: str) -> None:
    code = CODE_TYPES[kind]
    values = [each for each in values_of(kind) if 0 <= each <= code.largest]
    pairs = list(pairwise(values))
    for share in (0, Fraction(1, 3), Fraction(99, 100)):
        numbers = np.array([float(a + share * (b - a)) for a, b in pairs])
        expected = [float(b - a) for a, b in pairs]
        np.testing.assert_array_equal(code.steps(numbers), expected)
        np.testing.assert_array_equal(code.steps(-numbers), expected)
    last = float(values[-1] - values[-2])
    np.testing.assert_array_equal(code.steps(np.array([code.largest, np.inf])), [last, last])


@pytest.mark.parametrize("high_first", [False, True])
def test_two_codes_share_a_byte(high_first: bool) -> None:
    codes = np.random.default_rng(3).integers(0, 16, (5, 12)).astype(np.uint8)
    whole = packed(codes, high_first=high_first)
    for i, j in np.ndindex(5, 6):
        first, second = int(codes[i, 2 * j]), int(codes[i, 2 * j + 1])
        assert whole[i, j] == (first * 16 + second if high_first else second * 16 + first)
    np.testing.assert_array_equal(unpacked(whole, high_first=high_first), codes)


@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (128, 4), (130, 5), (300, 17), (31, 8)])
def test_unswizzled_is_the_inverse_of_the_layout(rows: int, groups: int) -> None:
    plain = np.random.default_rng(rows).integers(0, 256, (rows, groups)).astype(np.uint8)
    across = -(-groups // 4)
    swizzled = np.full(-(-rows // 128) * across * 512, 99, np.uint8)
    for r, g in np.ndindex(rows, groups):
        # The layout of cuBLAS: blocks of 128 rows and 4 groups, one after the other in a row.
        start = (r // 128 * across + g // 4) * 512
        swizzled[start + r % 32 * 16 + r % 128 // 32 * 4 + g % 4] = plain[r, g]
    np.testing.assert_array_equal(unswizzled(swizzled, rows, groups), plain)
    padded = (-(-rows // 128) * 128, across * 4)
    np.testing.assert_array_equal(unswizzled(swizzled.reshape(padded), rows, groups), plain)


def test_unswizzled_refuses_another_size() -> None:
    with pytest.raises(ValueError, match="scales must have 1024 elements for 129 rows and 4"):
        unswizzled(np.zeros(512, np.uint8), 129, 4)
