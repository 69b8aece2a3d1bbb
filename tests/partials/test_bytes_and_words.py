"""Partials as bytes and as words: one form each, and what is no partial is refused."""

import pickle
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from partials.batches import drawn_cases, nasty_cases, partial_of
from promise.families import Case

FLOAT32 = np.dtype(np.float32)
PartialGradients = tn.PartialGradients


def _batches() -> list[Case]:
    every = list(drawn_cases(FLOAT32, 60))
    return [*every[::5], *nasty_cases(FLOAT32, 6, 5, 24)]


def _partial(**changes: Any) -> tn.PartialGradients:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    _, saved = tn.rms_norm_forward(x, np.ones(3, np.float32), **changes)
    return tn.rms_norm_backward_partial(np.ones_like(x), saved)[1]


def test_bytes_and_pickles_come_back() -> None:
    for case in _batches():
        partial = partial_of(case, "reference")
        data = partial.tobytes()
        for again in (
            PartialGradients.frombuffer(data),
            PartialGradients.frombuffer(memoryview(bytearray(data))),
            pickle.loads(pickle.dumps(partial)),
        ):
            assert again.tobytes() == data, str(case)
            assert again == partial
            assert hash(again) == hash(partial)
            assert again.kind == partial.kind
            assert (again + partial).tobytes() == (partial + partial).tobytes()


def test_a_negative_zero_of_eps_has_the_bytes_of_zero() -> None:
    # Settings are cached by value: with other threads than elsewhere those of 0.0 are not found.
    assert _partial(eps=-0.0, threads=3).tobytes()[22:30] == bytes(8)


def test_equality_is_that_of_bytes() -> None:
    assert _partial() == _partial()
    assert _partial() != _partial(eps=1.0)
    assert _partial() != _partial() + _partial()
    assert _partial() != 1


def test_other_bytes_are_refused_by_name() -> None:
    data = _partial().tobytes()
    with pytest.raises(ValueError, match="expected bytes that begin with b'truenorm partial'"):
        PartialGradients.frombuffer(b"x" + data[1:])
    newer = data[:16] + b"\x03\x00" + data[18:]
    with pytest.raises(ValueError, match="expected version 2 of the format, got version 3"):
        PartialGradients.frombuffer(newer)
    with pytest.raises(ValueError, match=f"expected {len(data)} bytes, got {len(data) + 1}"):
        PartialGradients.frombuffer(data + b"\0")


def test_damaged_bytes_are_refused_as_such() -> None:
    """Cut anywhere, or changed in one byte of the header."""
    data = _partial().tobytes()
    for cut in range(len(data)):
        with pytest.raises(ValueError, match="bytes"):
            PartialGradients.frombuffer(data[:cut])
    for k in range(64):
        for value in {0, 1, 127, 255} - {data[k]}:
            changed = bytearray(data)
            changed[k] = value
            with pytest.raises(ValueError, match=r"expected|number of axes must be from 1 to 64"):
                PartialGradients.frombuffer(changed)


def _sum_of_words(parts: list[tn.PartialGradients]) -> tn.PartialGradients:
    extent = np.max([part.extent() for part in parts], axis=0)
    total = np.sum([part.to_words(extent) for part in parts], axis=0)
    return parts[-1].from_words(total, extent)


def test_sums_of_words_are_merged_partials() -> None:
    random = np.random.default_rng(5)
    for case in _batches():
        cuts = np.sort(random.integers(0, len(case.x) + 1, random.integers(0, 6)))
        parts = [
            partial_of(case.rows(part), "reference")
            for part in np.split(random.permutation(len(case.x)), cuts)
        ]
        whole = partial_of(case, "reference").tobytes()
        assert _sum_of_words(parts).tobytes() == whole, str(case)
        assert _sum_of_words([_sum_of_words(parts[:1]), *parts[1:]]).tobytes() == whole


def test_words_of_a_wider_extent_are_as_good() -> None:
    partial = _partial()
    wider = partial.extent() + np.array([2, 3, 0, 0, 1])
    assert partial.from_words(partial.to_words(wider), wider) == partial


def test_words_of_many_partials() -> None:
    """A million of them, of digits as large as they get, add up; one more is refused."""
    partial = _partial()
    extent = partial.extent()
    doubled = partial
    for _ in range(20):
        doubled = doubled + doubled
    words = partial.to_words(extent)
    assert partial.from_words(words * 2**20, extent) == doubled
    with pytest.raises(OverflowError, match="1048577 partials"):
        partial.from_words(words * (2**20 + 1), extent)


def test_words_that_do_not_fit_are_refused() -> None:
    partial = _partial()
    extent = partial.extent()
    for change in ([0, 1, 0, 0, 0], [1, 0, 0, 0, 0]):
        with pytest.raises(ValueError, match="extent must cover all digits of the partial"):
            partial.to_words(extent - np.array(change))
    with pytest.raises(ValueError, match="words"):
        partial.from_words(partial.to_words(extent)[:-1], extent)


def test_infinities_that_an_extent_does_not_know_are_refused() -> None:
    x = np.array([[1, 2, 4], [3, 3, 5]], np.float32)
    dy = np.array([[1, 1, 1], [1, np.inf, 1]], np.float32)
    _, saved = tn.rms_norm_forward(x, np.ones(3, np.float32), backend="reference")
    _, finite = tn.rms_norm_backward_partial(np.ones_like(x), saved, backend="reference")
    _, infinite = tn.rms_norm_backward_partial(dy, saved, backend="reference")
    with pytest.raises(ValueError, match="not finite"):
        infinite.to_words(finite.extent())


def test_words_of_another_type_are_refused() -> None:
    partial = _partial()
    words = partial.to_words(partial.extent())
    with pytest.raises(TypeError, match="words must be int64, got float64"):
        partial.from_words(words.astype(np.float64), partial.extent())
