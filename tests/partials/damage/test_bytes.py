"""Damaged bytes are refused: by ValueError, at once, and without large allocations."""

import sys
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from partials.batches import NARROW
from partials.damage.forging import HEADER, SECONDS, error_of, forged, sealed

frombuffer = tn.PartialGradients.frombuffer
Generator = np.random.Generator


def refused(data: bytes) -> str:
    return error_of(partial(frombuffer, data), len(data))


def partial_of(
    x: Any, dy: Any, *, centred: bool = True, beta: Any = None, **options: Any
) -> tn.PartialGradients:
    gamma = np.ones(x.shape[1:], x.dtype)
    options = {"backend": "reference", "axis": tuple(range(1, x.ndim)), **options}
    if centred:
        _, saved = tn.layer_norm_forward(x, gamma, beta, **options)
        return tn.layer_norm_backward_partial(dy, saved, backend="reference")[1]
    _, saved = tn.rms_norm_forward(x, gamma, **options)
    return tn.rms_norm_backward_partial(dy, saved, backend="reference")[1]


@cache
def encoded() -> list[bytes]:
    """Return partials of all types, both norms and several shapes, some not finite or empty."""
    random = np.random.default_rng(3)
    found = []
    for dtype in NARROW:
        for shape in ((1, 1), (2, 3), (4, 2, 5), (3, 67), (2, 4096), (0, 5)):
            for centred in (True, False):
                x, dy = random.standard_normal((2, *shape)).astype(dtype)
                beta = np.zeros(shape[1:], dtype) if shape[1] % 2 and centred else None
                if shape == (3, 67):
                    dy[1, 5], dy[2, 7] = np.inf, np.nan
                found.append(partial_of(x, dy, centred=centred, beta=beta).tobytes())
    return found


def test_every_flipped_bit_is_refused() -> None:
    """Half of them in the header, the others anywhere."""
    random = np.random.default_rng(0)
    for k in range(500):
        data = bytearray(encoded()[k % len(encoded())])
        end = HEADER.size if k // len(encoded()) % 2 else len(data)
        bit = int(random.integers(8 * end))
        data[bit // 8] ^= 1 << bit % 8
        message = refused(bytes(data))
        if bit // 8 >= HEADER.size + 16:  # after the lengths there is nothing else to see it by
            assert message.startswith("expected bytes with checksum 0x")


def test_a_byte_too_few_or_too_many_is_refused() -> None:
    for data in encoded():
        for changed in (data[:-1], data + b"\0", data[: HEADER.size + 3], data[:17], b""):
            refused(changed)
        assert refused(data + b"\0").startswith(f"expected {len(data)} bytes, got {len(data) + 1}")


@pytest.mark.parametrize("with_checksum", [True, False])
def test_random_headers_are_refused(with_checksum: bool) -> None:
    """All fields after the version are random, so that no partial has such a header."""
    random = np.random.default_rng(1)
    for k in range(500):
        data = encoded()[k % len(encoded())]
        header = data[:18] + random.bytes(HEADER.size - 18)
        body = header + data[HEADER.size : -4]
        refused(sealed(body) if with_checksum else body + data[-4:])


def _beyond(random: Generator, low: int, high: int, bits: int, signed: bool = False) -> int:
    """Return an integer of so many bits that is not from low to high."""
    least, end = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    while True:
        size = int(random.integers(1, bits + 1))  # small ones are as likely as large ones
        value = int.from_bytes(random.bytes(bits // 8), "little") >> bits - size
        value = -value if signed and random.integers(2) else value
        if least <= value < end and not low <= value <= high:
            return value


OUT_OF_RANGE: dict[str, Callable[[Generator], tuple[dict[str, Any], str]]] = {
    "norm": lambda random: ({"norm": _beyond(random, 0, 1, 8)}, "norm must be"),
    "x": lambda random: ({"x": _beyond(random, 0, 2, 8)}, "type of x must be"),
    "gamma": lambda random: (
        {"gamma": int(random.integers(3, 255))},
        "type of gamma must be",
    ),
    "beta": lambda random: ({"beta": int(random.integers(3, 255))}, "type of beta must be"),
    "negative eps": lambda random: ({"eps": -float(random.random()) - 1e-300}, "eps must be"),
    "other eps": lambda random: (
        {"eps": float(random.choice([np.nan, np.inf, -np.inf, -1.0, -5e-324]))},
        "eps must be",
    ),
    "rows": lambda random: ({"rows": _beyond(random, 0, 2**63 - 1, 64)}, "rows must be"),
    "first of dgamma": lambda random: (
        {"first_of_dgamma": _beyond(random, -10, 7, 32, signed=True)},
        "first place of dgamma must be",
    ),
    "first of dbeta": lambda random: (
        {"first_of_dbeta": _beyond(random, -10, 7, 32, signed=True)},
        "first place of dbeta must be",
    ),
    "places of dgamma": lambda random: (
        {"places_of_dgamma": int(random.integers(11, 500))},
        "number of places of dgamma must be",
    ),
    "places of dbeta": lambda random: (
        {"places_of_dbeta": int(random.integers(10, 500))},
        "number of places of dbeta must be",
    ),
    "axes": lambda random: (
        {"lengths": (1,) * int(random.choice([0, *range(65, 256)]))},
        "number of axes must be",
    ),
    "lengths": lambda random: (
        {"lengths": (0, int.from_bytes(random.bytes(8), "little"))},
        "length of axis 0 must be",
    ),
}
"""For each field, a random value outside of its range, and the message that names it."""


@pytest.mark.parametrize("field", OUT_OF_RANGE)
def test_a_field_out_of_its_range_is_refused_by_name(field: str) -> None:
    """The length and the checksum are right, so that only the range can refuse these."""
    random = np.random.default_rng(2)
    for _ in range(40):
        changes, message = OUT_OF_RANGE[field](random)
        assert message in refused(forged(**changes)), changes


@pytest.mark.parametrize("axes", [65, 129, 255])
def test_a_damaged_number_of_axes_has_a_short_message(axes: int) -> None:
    """The product of so many lengths has thousands of digits, and is not computed."""
    data = bytearray(forged(lengths=(4096,)))
    data[HEADER.size - 1] = axes
    message = refused(bytes(data))
    assert "number of axes must be from 1 to 64" in message
    assert len(message) < 200


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"norm": 1, "beta": 255, "first_of_dbeta": 0, "places_of_dbeta": 0},
        {"rows": 2**63 - 1, "eps": 0.0},
        {"x": 1, "gamma": 0, "lengths": (2, *[1] * 63)},
        {"first_of_dgamma": -10, "places_of_dgamma": 18, "eps": 1e300},
        {"first_of_dbeta": 7, "places_of_dbeta": 1, "gamma": 255},
    ],
)
def test_fields_at_the_ends_of_their_ranges_are_accepted(fields: dict[str, Any]) -> None:
    """Else the tests above would show nothing."""
    data = forged(**fields)
    assert frombuffer(data).tobytes() == data


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": 1}, "rms_norm has no beta"),
        ({"beta": 255}, "dbeta must have no places"),
        ({"flag": 5}, "flags must be from 0 to 4, got 5"),
        ({"flag": 8}, "flags must be from 0 to 4, got 8"),
        ({"flag": 1}, "canonical"),
        ({"digit": 0}, "canonical"),
        ({"places_of_dbeta": 0}, "canonical"),
        ({"eps": -0.0}, "canonical"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    """No partial has these bytes, although each field is in its range."""
    assert message in refused(forged(**changes))


def test_many_columns_need_as_many_bytes() -> None:
    """Else few bytes would ask for gigabytes: sums that are all zero have no digits."""
    empty = {"first_of_dgamma": 0, "places_of_dgamma": 0}
    data = forged((3,), **empty, first_of_dbeta=0, places_of_dbeta=0)
    np.testing.assert_array_equal(frombuffer(data).rounded().dgamma, np.zeros(3))
    body = data[: HEADER.size] + (5 * 2**30).to_bytes(8, "little") + data[HEADER.size + 8 : -4]
    assert refused(sealed(body)).startswith(f"expected {10 * 2**30 + HEADER.size + 12} bytes, got")


@pytest.mark.parametrize("digit", [1, 2**31 - 1, -(2**31), -1])
@pytest.mark.parametrize("dtype", range(3))
def test_accepted_bytes_are_rounded_at_once(digit: int, dtype: int) -> None:
    """Also with places at both ends of their range, where integers are as long as they get."""
    for first, places in ((-10, 18), (-10, 1), (7, 1)):
        ends = {"first_of_dgamma": first, "places_of_dgamma": places}
        ends |= {"first_of_dbeta": first, "places_of_dbeta": places}
        loaded = frombuffer(forged((64,), digit, **ends, gamma=dtype, beta=dtype))
        for divide_by in (1, 3, 2**53):
            start = time.process_time()
            loaded.rounded(divide_by)
            assert time.process_time() - start < SECONDS


def test_places_of_extreme_batches_are_in_range() -> None:
    """The largest and the smallest terms, and as many rows as there can be."""
    top = np.finfo(np.float32).max
    x = np.zeros((1, 1000), np.float32)
    x[0, 0] = 1.0
    largest = partial_of(x, np.full_like(x, top), centred=False, eps=0.0)
    smallest = partial_of(x * 2.0**-149, np.full_like(x, 2.0**-149), beta=x[0], eps=1e300)
    assert smallest.extent()[0] == 10
    for each in (largest, smallest):
        total = each
        for _ in range(62):
            total = total + total
            assert frombuffer(total.tobytes()) == total


def test_more_rows_than_an_int64_counts_are_refused() -> None:
    most, one = (frombuffer(forged(rows=rows)) for rows in (2**63 - 1, 1))
    with pytest.raises(ValueError, match=f"rows must be from 0 to {2**63 - 1}, got {2**63}"):
        most + one
    words = one.to_words(one.extent())
    words[1] = -1
    with pytest.raises(ValueError, match=r"rows must be from 0 to \d+, got -1"):
        one.from_words(words, one.extent())


def test_version_1_is_refused_by_name() -> None:
    message = refused(forged(version=1))
    assert message.startswith("expected version 2 of the format, got version 1: ")
    assert "tobytes" in message


def test_bytes_of_bfloat16_need_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert "pip install ml_dtypes" in refused(forged(gamma=1))


@pytest.mark.parametrize("value", [10**30, 5, None, "truenorm partial", [1, 2], 1.5])
def test_an_argument_that_is_no_buffer_is_refused(value: Any) -> None:
    message = error_of(partial(frombuffer, value), kind=TypeError)
    assert message == (
        f"data must be a bytes-like object, got {type(value).__name__}: pass the bytes that "
        "tobytes returned"
    )
