"""Each pattern does what it says, in every type, the same each time."""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from truenorm.verify.cases.patterns import PATTERNS, Pattern, filled, number
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, ulps_of

OPTIONS: dict[str, dict[str, Any]] = {
    "alternating": {"high": 5, "ripple": 0.1},
    "cancelling": {"scale": 100},
    "constant": {"value": 3},
    "decades": {"reach": 6},
    "integers": {"limit": 9},
    "next-to-ties": {"eps": "0x1p-17"},
    "one-ulp-off": {"value": 1234},
    "outlier": {"outlier": 50},
    "signs": {"value": 7},
    "values": {"values": [1, -2, "0x1p+3", 4, 0.5, 6, 7]},
}
X = np.linspace(-3, 5, 28, dtype=np.float32).reshape(4, 7)


def made(name: str, dtype: str = "float64", shape: tuple[int, ...] = (4, 7)) -> Array:
    return filled({"pattern": name, **OPTIONS.get(name, {})}, dtype, shape, "test", x=X)


def wide(array: Array) -> Float64s:
    result: Float64s = array.astype(np.float64)
    return result


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("name", PATTERNS)
def test_shape_type_and_bits(name: str, dtype: str) -> None:
    array = made(name, dtype)
    assert array.shape == (4, 7)
    assert array.dtype == dtype_of(dtype)
    assert np.isfinite(wide(array)).all()
    assert array.tobytes() == made(name, dtype).tobytes()
    if name != "proportional":
        assert made(name, dtype, (0, 7)).shape == (0, 7)
        assert made(name, dtype, (7,)).shape == (7,)


def test_noise_goes_by_its_seed() -> None:
    """A case's name says all: the bits must not change with a version of this package."""
    assert zlib.crc32(filled("normal", "float32", (3, 5), "pinned").tobytes()) == 0x15B10AFE
    arrays = [filled("normal", "float32", (2, 3), seed) for seed in ("a", "b", [1, 2], [1, 3])]
    assert len({array.tobytes() for array in arrays}) == 4


@pytest.mark.parametrize("dtype", FORMATS)
def test_numbers_by_name(dtype: str) -> None:
    kind = dtype_of(dtype)
    largest = np.array(number("max", dtype), kind)
    assert np.isfinite(wide(largest))
    with np.errstate(over="ignore"):
        assert np.isinf(np.nextafter(largest, np.array(np.inf, kind)))
    assert number("smallest", dtype) == ulps_of(np.zeros(()), dtype)
    least = np.array(number("smallest-normal", dtype))
    assert ulps_of(least, dtype) == number("smallest", dtype)
    assert ulps_of(2 * least, dtype) == 2 * number("smallest", dtype)
    assert number("-0x1p-3", dtype) == -0.125
    assert number("-inf", dtype) == -np.inf


def test_noise_has_its_mean_and_deviation() -> None:
    pattern = {"pattern": "normal", "offset": [0, 1000], "scale": [1, "0x1p-3"]}
    x = filled(pattern, "float64", (2, 10_000), "test")
    assert (np.abs(x.mean(axis=1) - [0, 1000]) <= [0.05, 0.01]).all()
    assert (np.abs(x.std(axis=1) / [1, 0.125] - 1) <= 0.05).all()
    x = filled({"pattern": "normal", "scale": "max"}, "float16", (1, 100), "test")
    assert np.abs(x).max() == 65504


SIGNS = np.where(np.arange(7) % 2, -1, 1)
SPREAD = np.arange(-3, 4)
IS_WHAT_IT_SAYS: dict[str, Callable[[Float64s], Any]] = {
    "sorted": lambda rows: np.diff(rows, axis=1) >= 0,
    "multiples": lambda rows: rows[1:] == rows[0] * np.array([[-1], [2], [1]]),
    "values": lambda rows: rows == [1, -2, 8, 4, 0.5, 6, 7],
    "constant": lambda rows: rows == 3,
    "ones": lambda rows: rows == 1,
    "zeros": lambda rows: rows == 0,
    "outlier": lambda rows: (rows == 50).sum(axis=1) == 1,
    "alternating": lambda rows: np.sign(rows) == SIGNS,
    "alternating-signs": lambda rows: rows == SIGNS,
    "decades": lambda rows: (
        np.abs(np.sort(np.log10(np.abs(rows)), axis=1) - SPREAD) <= 1.5 * np.log10(2)
    ),
    "one-hot": lambda rows: np.sort(rows, axis=1) == [0, 0, 0, 0, 0, 0, 1],
    "positive": lambda rows: (rows >= 0.5) & (rows < 1),
    "signs": lambda rows: sorted(set(rows.ravel().tolist())) == [-7, 7],
    "integers": lambda rows: (rows == np.rint(rows)) & (np.abs(rows) <= 9) & (np.ptp(rows) > 9),
    "ramp": lambda rows: rows == np.arange(7),
    "one-zero": lambda rows: (rows == 0) == (np.arange(7) == 0),
    "random": lambda rows: np.ptp(np.sign(rows)) == 2,
    "large": lambda rows: np.abs(rows).mean() > 500,
}


@pytest.mark.parametrize("name", IS_WHAT_IT_SAYS)
def test_a_pattern_is_what_its_name_says(name: str) -> None:
    assert np.all(IS_WHAT_IT_SAYS[name](made(name)))


def test_a_list_gives_one_number_to_each_row() -> None:
    x = filled({"pattern": "ramp", "start": [0, 100], "step": 0.5}, "float32", (2, 3), "test")
    assert x.tolist() == [[0, 0.5, 1], [100, 100.5, 101]]
    rows = filled({"pattern": "values", "values": [["0x1p+0"], [2]]}, "float32", (3, 1), "test")
    assert rows.tolist() == [[1], [2], [1]]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"pattern": "values", "values": [1]}, "rows of 1 numbers, not 2"),
        ("proportional", "needs x"),
        ("guess", "'guess' is unknown; known are normal, "),
    ],
)
def test_what_cannot_be_filled_is_refused(pattern: Pattern, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        filled(pattern, "float32", (1, 2), "test")


@pytest.mark.parametrize("dtype", FORMATS)
def test_one_element_is_one_ulp_off(dtype: str) -> None:
    x = wide(made("one-ulp-off", dtype))
    steps = (x - x.min()) / ulps_of(np.array(x.min()), dtype)
    assert (np.sort(steps, axis=1) == [0, 0, 0, 0, 0, 0, 1]).all()


@pytest.mark.parametrize("size", [1, 2, 6, 7])
def test_pairs_cancel(size: int) -> None:
    rows = filled({"pattern": "cancelling", "scale": 1e9}, "float32", (3, size), "test")
    assert [sum(map(int, np.ldexp(wide(row), 100))) for row in rows] == [1 << 100] * 3


def test_proportional_to_x_by_a_power_of_two() -> None:
    factors = made("proportional") / X
    assert (factors == factors[:, :1]).all()
    assert (np.frexp(factors)[0] == 0.5).all()
    assert np.abs(made("proportional")).max() <= 1


@pytest.mark.parametrize("dtype", FORMATS)
def test_tiny_parameters_are_normal_numbers(dtype: str) -> None:
    tiny = np.abs(wide(made("tiny", dtype)))
    assert (tiny >= number("smallest-normal", dtype)).all()
    assert tiny.max() < 0.1


def test_put_comes_last() -> None:
    put = [[0, 1, "nan"], [1, 0, "-inf"], [1, 1, "max"]]
    x = filled({"pattern": "zeros", "put": put}, "float16", (2, 2), "test")
    assert np.array_equal(x, np.array([[0, np.nan], [-np.inf, 65504]]), equal_nan=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_next_to_ties(dtype: str) -> None:
    """In each row an element of xhat is next to a middle; the mean is 0."""
    x = wide(filled({"pattern": "next-to-ties", "eps": "0x1p-17"}, dtype, (12, 131), "ties"))
    assert (x.sum(axis=1) == 0).all()
    xhat = np.abs(x) / np.sqrt((x * x).mean(axis=1, keepdims=True) + 2.0**-17)
    places = xhat / ulps_of(xhat, dtype)
    off = np.abs(places - np.floor(places) - 0.5) * ulps_of(xhat, dtype)
    assert (off.min(axis=1) < 2.0**-24).all()
    assert np.median(off.min(axis=1)) < 2.0**-27
