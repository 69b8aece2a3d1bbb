"""How kernels read and write the four types: every pattern, and every kind of rounding."""

from typing import Any

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from promise.families import DTYPES, Array  # noqa: E402
from promise.formats import FORMATS, bits  # noqa: E402
from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FLOAT64  # noqa: E402
from truenorm.kernels.fused.blocks import coded  # noqa: E402
from truenorm.kernels.fused.compiled.elements.encoding import (  # noqa: E402
    as_bits,
    decode,
    encode,
    encode_single,
    magnitude,
)
from truenorm.kernels.storage import stored_view  # noqa: E402

TARGETS = {target.name: target for target in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)}
SIXTEEN_BITS = DTYPES[:2]


def each(function: Any, values: Array, out: Array) -> Array:
    """Call a compiled function for every element."""

    @numba.njit  # type: ignore[untyped-decorator]
    def loop(values: Any, out: Any) -> None:
        for k in range(values.size):
            out[k] = function(values[k])

    loop(values, out)
    return out


@numba.njit  # type: ignore[untyped-decorator]
def encoded(values: Any, out: Any) -> None:
    for k in range(values.size):
        out[k] = encode(values[k], out[0])


@numba.njit  # type: ignore[untyped-decorator]
def encoded_singles(values: Any, out: Any) -> None:
    for k in range(values.size):
        out[k] = encode_single(values[k], out[0])


def as_kernels_take_it(array: Array) -> Array:
    target = TARGETS[array.dtype.name]
    return coded(stored_view(array, target), target)


def every(dtype: np.dtype[Any]) -> Array:
    return np.arange(2**16, dtype=np.uint16).view(dtype)


def double_bits(values: Array) -> list[int]:
    numbers: list[int] = np.where(np.isnan(values), np.nan, values).view(np.uint64).tolist()
    return numbers


@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
def test_every_pattern_is_read(dtype: np.dtype[Any]) -> None:
    """Zeros with their sign, subnormals, infinities; NaN is NaN."""
    out = each(decode, as_kernels_take_it(every(dtype)), np.empty(2**16))
    with np.errstate(invalid="ignore"):
        expected = every(dtype).astype(np.float64)
    assert double_bits(out) == double_bits(expected)


@pytest.mark.parametrize("dtype", DTYPES[2:], ids=str)
def test_wider_types_are_themselves(dtype: np.dtype[Any]) -> None:
    values = np.random.default_rng(0).integers(0, 2**63, 1000, np.uint64).view(dtype)
    values = values[np.isfinite(values)]
    out = each(decode, as_kernels_take_it(values), np.empty(len(values)))
    assert double_bits(out) == double_bits(values.astype(np.float64))


def difficult(dtype: np.dtype[Any]) -> Array:
    """Return numbers of the type, midpoints of neighbours, and what lies just beside those."""
    with np.errstate(invalid="ignore"):
        numbers = many(dtype).astype(np.float64)
    numbers = np.sort(numbers[np.isfinite(numbers) & ~np.signbit(numbers)])
    top = np.array([numbers[-1] + (numbers[-1] - numbers[-2]) / 2])  # there infinity begins
    midpoints = np.concatenate([(numbers[1:] + numbers[:-1]) / 2, top])
    beside = [np.nextafter(midpoints, side) for side in (-np.inf, np.inf)]
    random = np.random.default_rng(0)
    anywhere = np.ldexp(random.standard_normal(5000), random.integers(-1060, 1000, 5000))
    special = np.array([0.0, -0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, np.inf, -np.inf])
    chosen = np.concatenate([numbers, midpoints, *beside, -top])
    return np.concatenate([chosen * random.choice([1, -1], chosen.size), anywhere, special])


def many(dtype: np.dtype[Any]) -> Array:
    """Return all numbers of 16 bits, or runs of neighbours all over the range."""
    if dtype in SIXTEEN_BITS:
        return every(dtype)
    form = FORMATS[dtype]
    starts = np.linspace(0, form.infinity - 4, 2000).astype(np.uint64)
    edges = np.array([0, 1 << (form.precision - 1), form.infinity - 4], np.uint64)
    runs = np.concatenate([starts, edges])[:, np.newaxis] + np.arange(4, dtype=np.uint64)
    unsigned = np.unique(runs).astype(form.storage)
    return np.concatenate([unsigned, unsigned | form.storage.type(form.minus)]).view(dtype)


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_numbers_are_rounded_once(dtype: np.dtype[Any]) -> None:
    """To nearest, ties to even, as the judge rounds fractions."""
    values = difficult(dtype)
    out = np.empty(len(values), dtype)
    encoded(values, as_kernels_take_it(out))
    assert bits(out).tolist() == rounded_once(values, dtype)


@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
def test_float32_is_rounded_once(dtype: np.dtype[Any]) -> None:
    """As fast mode does it: midpoints of 16 bits, and what lies just beside those, are float32."""
    with np.errstate(all="ignore"):
        values = difficult(dtype).astype(np.float32)
    beside = [np.nextafter(values, np.float32(side)) for side in (-np.inf, np.inf)]
    values = np.concatenate([values, *beside])
    out = np.empty(len(values), dtype)
    encoded_singles(values, as_kernels_take_it(out))
    assert bits(out).tolist() == rounded_once(values, dtype)


def rounded_once(values: Array, dtype: np.dtype[Any]) -> list[int]:
    """Return the bits of each value in a type, by the judge."""
    form, expected = FORMATS[dtype], []
    for value in values.tolist():
        if np.isinf(value):
            expected.append(form.of_special(value))
            continue
        numerator, denominator = value.as_integer_ratio()
        rounded = form.of_dyadic(numerator, 1 - denominator.bit_length())
        expected.append(rounded | (form.minus if str(value) == "-0.0" else 0))
    return expected


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_magnitudes_are_in_order_of_size(dtype: np.dtype[Any]) -> None:
    values = many(dtype)
    out = each(magnitude, as_kernels_take_it(values), np.empty(len(values), np.int64))
    sign = FORMATS[dtype].minus
    assert out.tolist() == [pattern & ~sign for pattern in bits(values).tolist()]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_patterns_tell_all_numbers_apart(dtype: np.dtype[Any]) -> None:
    values = many(dtype)
    out = each(as_bits, as_kernels_take_it(values), np.empty(len(values), np.int64))
    assert len(set(out.tolist())) == len(values)
