"""Exchange forms of partials: bytes and words round-trip, and damaged ones raise.

Damage must raise ValueError quickly and without large allocations, as bytes come from files.
"""

import math
import pickle
import re
import struct
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import truenorm as tn
from shared.partials.cases import NARROW, mixed_cases, partial_of, promise_cases
from shared.promise.families import Case

FLOAT32 = np.dtype(np.float32)
Generator = np.random.Generator
frombuffer = tn.PartialGradients.frombuffer


def batches() -> list[Case]:
    small = list(promise_cases(FLOAT32, 60))
    return [*small[::5], *mixed_cases(FLOAT32, 6, 5, 24)]


def small_partial(**changes: Any) -> tn.PartialGradients:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    _, saved = tn.rms_norm_forward(x, np.ones(3, np.float32), **changes)
    return tn.rms_norm_backward_partial(np.ones_like(x), saved)[1]


def test_bytes_and_pickles_round_trip() -> None:
    for case in batches():
        partial = partial_of(case, "reference")
        data = partial.tobytes()
        for again in (
            frombuffer(data),
            frombuffer(memoryview(bytearray(data))),
            pickle.loads(pickle.dumps(partial)),
        ):
            assert again.tobytes() == data, str(case)
            assert again == partial
            assert hash(again) == hash(partial)
            assert again.kind == partial.kind
            assert (again + partial).tobytes() == (partial + partial).tobytes()


def test_negative_zero_eps_has_the_bytes_of_zero() -> None:
    # Settings are cached by value: another number of threads avoids the cached ones of 0.0.
    assert small_partial(eps=-0.0, threads=3).tobytes()[22:30] == bytes(8)


def test_equality_is_that_of_bytes() -> None:
    assert small_partial() == small_partial()
    assert small_partial() != small_partial(eps=1.0)
    assert small_partial() != small_partial() + small_partial()
    assert small_partial() != 1


def sum_of_words(parts: list[tn.PartialGradients]) -> tn.PartialGradients:
    extent = np.max([part.extent() for part in parts], axis=0)
    total = np.sum([part.to_words(extent) for part in parts], axis=0)
    return parts[-1].from_words(total, extent)


def test_sums_of_words_are_merged_partials() -> None:
    random = np.random.default_rng(5)
    for case in batches():
        cuts = np.sort(random.integers(0, len(case.x) + 1, random.integers(0, 6)))
        parts = [
            partial_of(case.rows(part), "reference")
            for part in np.split(random.permutation(len(case.x)), cuts)
        ]
        whole = partial_of(case, "reference").tobytes()
        assert sum_of_words(parts).tobytes() == whole, str(case)
        assert sum_of_words([sum_of_words(parts[:1]), *parts[1:]]).tobytes() == whole


def test_words_of_many_partials() -> None:
    """2**20 partials add up; one more raises OverflowError."""
    partial = small_partial()
    extent = partial.extent()
    doubled = partial
    for _ in range(20):
        doubled = doubled + doubled
    words = partial.to_words(extent)
    assert partial.from_words(words * 2**20, extent) == doubled
    with pytest.raises(OverflowError, match="1048577 partials"):
        partial.from_words(words * (2**20 + 1), extent)


def test_words_that_do_not_fit_raise() -> None:
    partial = small_partial()
    extent = partial.extent()
    for change in ([0, 1, 0, 0, 0], [1, 0, 0, 0, 0]):
        with pytest.raises(ValueError, match="extent must cover all limbs of the partial"):
            partial.to_words(extent - np.array(change))
    with pytest.raises(ValueError, match="words"):
        partial.from_words(partial.to_words(extent)[:-1], extent)


def test_infinities_outside_the_extent_raise() -> None:
    x = np.array([[1, 2, 4], [3, 3, 5]], np.float32)
    dy = np.array([[1, 1, 1], [1, np.inf, 1]], np.float32)
    _, saved = tn.rms_norm_forward(x, np.ones(3, np.float32), backend="reference")
    _, finite = tn.rms_norm_backward_partial(np.ones_like(x), saved, backend="reference")
    _, infinite = tn.rms_norm_backward_partial(dy, saved, backend="reference")
    with pytest.raises(ValueError, match="non-finite"):
        infinite.to_words(finite.extent())


def test_words_of_another_type_raise() -> None:
    partial = small_partial()
    words = partial.to_words(partial.extent())
    with pytest.raises(TypeError, match="words must be int64, got float64"):
        partial.from_words(words.astype(np.float64), partial.extent())


HEADER = struct.Struct("<16sH4BdQiIiIB")
SECONDS = 0.1
TRIES = 3
"""Processor time of a call, since other processes may share the machine."""


class Header(NamedTuple):
    """Fields of a header, by default those of docs/reference/partial-format.md."""

    magic: bytes = b"truenorm partial"
    version: int = 2
    norm: int = 0
    x: int = 2
    gamma: int = 2
    beta: int = 2
    eps: float = 1e-5
    rows: int = 2
    first_of_dgamma: int = -2
    limbs_of_dgamma: int = 3
    first_of_dbeta: int = -1
    limbs_of_dbeta: int = 2
    axes: int = 1


def sealed(body: bytes) -> bytes:
    """Append a valid checksum."""
    return body + struct.pack("<I", zlib.crc32(body))


def forged(shape: tuple[int, ...] = (3,), limb: int = 1, flag: int = 0, **fields: Any) -> bytes:
    """Return bytes of the right length and checksum, so that only checks of ranges apply."""
    header = Header(axes=len(shape))._replace(**fields)
    size = math.prod(shape)
    count = header.limbs_of_dgamma * (size + 1) + header.limbs_of_dbeta * size
    return sealed(
        b"".join(
            (
                HEADER.pack(*header),
                struct.pack(f"<{len(shape)}Q", *shape),
                np.full(count, limb, "<i4").tobytes(),
                np.full(2 * size, flag, np.uint8).tobytes(),
            )
        )
    )


def error_of(call: Callable[[], Any], nbytes: int = 0, kind: type[Exception] = ValueError) -> str:
    """Return the message of a call that must fail quickly and in little memory.

    The best of several tries counts: the first may import modules or collect garbage.
    """
    most = 2**18 + 8 * nbytes
    seconds, peak, message = math.inf, most, ""
    for _ in range(TRIES):
        tracemalloc.start()
        try:
            start = time.process_time()
            with pytest.raises(kind) as caught:
                call()
            seconds = time.process_time() - start
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        message = str(caught.value)
        if seconds < SECONDS and peak < most:
            break
    assert seconds < SECONDS
    assert peak < most
    return message


def test_truncated_bytes_and_changed_headers_raise() -> None:
    data = small_partial().tobytes()
    for cut in range(len(data)):
        with pytest.raises(ValueError, match="bytes"):
            frombuffer(data[:cut])
    for k in range(64):
        for value in {0, 1, 127, 255} - {data[k]}:
            changed = bytearray(data)
            changed[k] = value
            with pytest.raises(ValueError, match=r"expected|number of axes must be from 1 to 64"):
                frombuffer(changed)


def error_of_bytes(data: bytes) -> str:
    return error_of(partial(frombuffer, data), len(data))


def partial_of_arrays(
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
def valid_bytes() -> list[bytes]:
    """Return partials of all types, both norms and several shapes, some not finite or empty."""
    random = np.random.default_rng(3)
    valid = []
    for dtype in NARROW:
        for shape in ((1, 1), (2, 3), (4, 2, 5), (3, 67), (2, 4096), (0, 5)):
            for centred in (True, False):
                x, dy = random.standard_normal((2, *shape)).astype(dtype)
                beta = np.zeros(shape[1:], dtype) if shape[1] % 2 and centred else None
                if shape == (3, 67):
                    dy[1, 5], dy[2, 7] = np.inf, np.nan
                valid.append(partial_of_arrays(x, dy, centred=centred, beta=beta).tobytes())
    return valid


def test_every_flipped_bit_raises() -> None:
    """Half of them in the header, the others anywhere."""
    random = np.random.default_rng(0)
    for k in range(500):
        data = bytearray(valid_bytes()[k % len(valid_bytes())])
        end = HEADER.size if k // len(valid_bytes()) % 2 else len(data)
        bit = int(random.integers(8 * end))
        data[bit // 8] ^= 1 << bit % 8
        message = error_of_bytes(bytes(data))
        if bit // 8 >= HEADER.size + 16:  # only the checksum covers the bytes after the shape
            assert message.startswith("expected bytes with checksum 0x")


def test_other_magic_raises() -> None:
    message = error_of_bytes(forged(magic=b"xruenorm partial"))
    assert message.startswith("expected bytes that begin with b'truenorm partial'")


def test_wrong_lengths_raise() -> None:
    for data in valid_bytes():
        for changed in (data[:-1], data + b"\0", data[: HEADER.size + 3], data[:17], b""):
            error_of_bytes(changed)
        assert error_of_bytes(data + b"\0").startswith(
            f"expected {len(data)} bytes, got {len(data) + 1}"
        )


@pytest.mark.parametrize("with_checksum", [True, False])
def test_random_headers_raise(with_checksum: bool) -> None:
    """All fields after the version are random."""
    random = np.random.default_rng(1)
    for k in range(500):
        data = valid_bytes()[k % len(valid_bytes())]
        header = data[:18] + random.bytes(HEADER.size - 18)
        body = header + data[HEADER.size : -4]
        error_of_bytes(sealed(body) if with_checksum else body + data[-4:])


def _beyond(random: Generator, low: int, high: int, bits: int, signed: bool = False) -> int:
    """Return an integer with the given number of bits that is not from low to high."""
    least, end = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    while True:
        size = int(random.integers(1, bits + 1))  # every magnitude is equally likely
        value = int.from_bytes(random.bytes(bits // 8), "little") >> bits - size
        value = -value if signed and random.integers(2) else value
        if least <= value < end and not low <= value <= high:
            return value


OUT_OF_RANGE: dict[str, tuple[str, Callable[[Generator], Any]]] = {
    "norm": ("norm must be", lambda random: _beyond(random, 0, 1, 8)),
    "x": ("type of x must be", lambda random: _beyond(random, 0, 2, 8)),
    "gamma": ("type of gamma must be", lambda random: int(random.integers(3, 255))),
    "beta": ("type of beta must be", lambda random: int(random.integers(3, 255))),
    "eps": ("eps must be", lambda random: float(
        random.choice([np.nan, np.inf, -np.inf, -1.0, -5e-324, -random.random() - 1e-300]))),
    "rows": ("rows must be", lambda random: _beyond(random, 0, 2**63 - 1, 64)),
    "first_of_dgamma": ("first limb of dgamma must be",
        lambda random: _beyond(random, -10, 7, 32, signed=True)),
    "first_of_dbeta": ("first limb of dbeta must be",
        lambda random: _beyond(random, -10, 7, 32, signed=True)),
    "limbs_of_dgamma": ("number of limbs of dgamma must be",
        lambda random: int(random.integers(11, 500))),
    "limbs_of_dbeta": ("number of limbs of dbeta must be",
        lambda random: int(random.integers(10, 500))),
    "shape": ("length of axis 0 must be",
        lambda random: (0, int.from_bytes(random.bytes(8), "little"))),
}  # fmt: skip
"""For each field, the message that names it, and a random value outside of its range."""


@pytest.mark.parametrize("field", OUT_OF_RANGE)
def test_field_out_of_range_raises_by_name(field: str) -> None:
    random = np.random.default_rng(2)
    message, draw = OUT_OF_RANGE[field]
    for _ in range(40):
        fields = {field: draw(random)}
        assert message in error_of_bytes(forged(**fields)), fields


@pytest.mark.parametrize("axes", [0, 65, 129, 255])
def test_number_of_axes_out_of_range(axes: int) -> None:
    assert "number of axes must be" in error_of_bytes(forged(shape=(1,) * axes))


@pytest.mark.parametrize("axes", [65, 129, 255])
def test_damaged_number_of_axes_has_a_short_message(axes: int) -> None:
    """The product of so many shape has thousands of digits, and is not computed."""
    data = bytearray(forged(shape=(4096,)))
    data[HEADER.size - 1] = axes
    message = error_of_bytes(bytes(data))
    assert "number of axes must be from 1 to 64" in message
    assert len(message) < 200


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"norm": 1, "beta": 255, "first_of_dbeta": 0, "limbs_of_dbeta": 0},
        {"rows": 2**63 - 1, "eps": 0.0},
        {"x": 1, "gamma": 0, "shape": (2, *[1] * 63)},
        {"first_of_dgamma": -10, "limbs_of_dgamma": 18, "eps": 1e300},
        {"first_of_dbeta": 7, "limbs_of_dbeta": 1, "gamma": 255},
    ],
)
def test_fields_at_the_ends_of_their_ranges_are_valid(fields: dict[str, Any]) -> None:
    """Otherwise the tests above would pass for any check."""
    data = forged(**fields)
    assert frombuffer(data).tobytes() == data


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": 1}, "rms_norm has no beta"),
        ({"beta": 255}, "dbeta must have no limbs"),
        ({"flag": 5}, "flags must be from 0 to 4, got 5"),
        ({"flag": 8}, "flags must be from 0 to 4, got 8"),
        ({"flag": 1}, "canonical"),
        ({"limb": 0}, "canonical"),
        ({"limbs_of_dbeta": 0}, "canonical"),
        ({"eps": -0.0}, "canonical"),
    ],
)
def test_contradictory_fields_raise(changes: dict[str, Any], message: str) -> None:
    """Each field is in its range, but no partial has these bytes."""
    assert message in error_of_bytes(forged(**changes))


def test_many_columns_need_as_many_bytes() -> None:
    """Otherwise few bytes could allocate gigabytes: sums that are zero have no limbs."""
    empty = {"first_of_dgamma": 0, "limbs_of_dgamma": 0}
    data = forged((3,), **empty, first_of_dbeta=0, limbs_of_dbeta=0)
    np.testing.assert_array_equal(frombuffer(data).rounded().dgamma, np.zeros(3))
    body = data[: HEADER.size] + (5 * 2**30).to_bytes(8, "little") + data[HEADER.size + 8 : -4]
    assert error_of_bytes(sealed(body)).startswith(
        f"expected {10 * 2**30 + HEADER.size + 12} bytes, got"
    )


@pytest.mark.parametrize("limb", [1, 2**31 - 1, -(2**31), -1])
@pytest.mark.parametrize("dtype", range(3))
def test_valid_bytes_are_rounded_quickly(limb: int, dtype: int) -> None:
    """Also with limbs at both ends of their range, where integers are longest."""
    for first, length in ((-10, 18), (-10, 1), (7, 1)):
        ends = {"first_of_dgamma": first, "limbs_of_dgamma": length}
        ends |= {"first_of_dbeta": first, "limbs_of_dbeta": length}
        loaded = frombuffer(forged((64,), limb, **ends, gamma=dtype, beta=dtype))
        for divide_by in (1, 3, 2**53):
            start = time.process_time()
            loaded.rounded(divide_by)
            assert time.process_time() - start < SECONDS


def test_limbs_of_extreme_batches_are_in_range() -> None:
    """Test the largest and smallest terms with the largest number of rows."""
    top = np.finfo(np.float32).max
    x = np.zeros((1, 1000), np.float32)
    x[0, 0] = 1.0
    largest = partial_of_arrays(x, np.full_like(x, top), centred=False, eps=0.0)
    smallest = partial_of_arrays(x * 2.0**-149, np.full_like(x, 2.0**-149), beta=x[0], eps=1e300)
    assert smallest.extent()[0] == 10
    for each in (largest, smallest):
        total = each
        for _ in range(62):
            total = total + total
            assert frombuffer(total.tobytes()) == total


def test_more_rows_than_int64_raise() -> None:
    most, one = (frombuffer(forged(rows=rows)) for rows in (2**63 - 1, 1))
    with pytest.raises(ValueError, match=f"rows must be from 0 to {2**63 - 1}, got {2**63}"):
        most + one
    words = one.to_words(one.extent())
    words[1] = -1
    with pytest.raises(ValueError, match=r"rows must be from 0 to \d+, got -1"):
        one.from_words(words, one.extent())


@pytest.mark.parametrize("version", [1, 3])
def test_other_versions_raise(version: int) -> None:
    message = error_of_bytes(forged(version=version))
    assert message.startswith(f"expected version 2 of the format, got version {version}: ")
    assert "tobytes" in message


def test_bytes_of_bfloat16_need_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert "pip install ml_dtypes" in error_of_bytes(forged(gamma=1))


@pytest.mark.parametrize("value", [10**30, 5, None, "truenorm partial", [1, 2], 1.5])
def test_other_arguments_raise(value: Any) -> None:
    message = error_of(partial(frombuffer, value), kind=TypeError)
    assert message == (
        f"data must be a bytes-like object, got {type(value).__name__}: pass the bytes that "
        "tobytes returned"
    )


NO_LIMBS = -(2**31)
EXTENTS: dict[str, tuple[Any, type[Exception], str]] = {
    "None": (None, TypeError, "extent must be an array of integers, got object"),
    "text": ("12345", TypeError, "extent must be an array of integers, got <U5"),
    "float64": (np.ones(5), TypeError, "extent must be an array of integers, got float64"),
    "bool": (np.ones(5, bool), TypeError, "extent must be an array of integers, got bool"),
    "huge": ([10**30] * 5, TypeError, "extent must be an array of integers, got object"),
    "empty": (np.zeros(0, np.int64), ValueError, r"extent must have shape \(5,\), got \(0,\)"),
    "four": ([2, 1, 1, 1], ValueError, r"extent must have shape \(5,\), got \(4,\)"),
    "six": ([2, 1, 1, 1, 0, 0], ValueError, r"extent must have shape \(5,\), got \(6,\)"),
    "scalar": (7, ValueError, r"extent must have shape \(5,\), got \(\)"),
    "table": ([[2, 1, 1, 1, 0]] * 2, ValueError, r"extent must have shape \(5,\), got \(2, 5\)"),
    "80 TiB": ([2, 2**41, 1, 1, 0], ValueError, "number of limbs of dgamma must be .* got"),
    "low": ([11, 1, 1, 1, 0], ValueError, "first limb of dgamma must be from -10 to 7, got -11"),
    "high": ([2, 1, -8, 9, 0], ValueError, "first limb of dbeta must be from -10 to 7, got 8"),
    "many": ([2, 1, 1, 8 + 1, 0], ValueError, "limbs of dbeta must be from 0 to 9, got 10"),
    "backwards": ([2, -3, 1, 1, 0], ValueError, "limbs of dgamma must be from 0 to 10, got -1"),
    "int64": ([-(2**63)] * 5, ValueError, f"first limb of dgamma .* got {2**63}"),
    "uint64": (np.full(5, 2**64 - 1, np.uint64), ValueError, "first limb of dgamma must be"),
    "half": ([2, NO_LIMBS, 1, 1, 0], ValueError, "limbs of dgamma must be from 0 to 10, got"),
    "other half": ([NO_LIMBS, 1, 1, 1, 0], ValueError, "first limb of dgamma must be"),
    "flag": ([2, 1, 1, 1, 2], ValueError, r"extent\[4\] must be from 0 to 1, got 2"),
    "negative flag": ([2, 1, 1, 1, -1], ValueError, r"extent\[4\] must be from 0 to 1, got -1"),
}


@pytest.mark.parametrize("name", EXTENTS)
def test_malformed_extents_raise(name: str) -> None:
    extent, kind, message = EXTENTS[name]
    valid = frombuffer(forged())
    words = valid.to_words(valid.extent())
    for call in (partial(valid.to_words, extent), partial(valid.from_words, words, extent)):
        assert re.search(message, error_of(call, kind=kind))


def test_extents_may_be_any_integers() -> None:
    valid = frombuffer(forged())
    for extent in ([2, 1, 1, 1, 0], np.array([2, 1, 1, 1, 0], np.int32), [10, 8, 10, 8, 1]):
        assert valid.from_words(valid.to_words(extent), extent) == valid  # type: ignore[arg-type]
