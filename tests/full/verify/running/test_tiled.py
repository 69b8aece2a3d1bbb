"""Calls that repeat rows, and many equal calls: what their records tell."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.recorded import in_float64
from truenorm.verify.calls import MANY, TILED, Call
from truenorm.verify.operation import Case
from truenorm.verify.running.records import Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.running.tiled import first_change, repeated
from truenorm.verify.types import Array


@cache
def example() -> Case:
    return tv.case("float32-row-counts-5x8")


def record_of(change: Callable[[Array], Any], call: Call) -> Record:
    """Return the record of a right subject whose y is changed in place."""

    def forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        y = in_float64(x, gamma, beta, eps)
        change(y)
        return y

    return InProcess(tv.Subject(forward)).run(example(), call)


@pytest.mark.parametrize("count", [1, 4, 5, 6, 13, 100_001])
def test_equal_copies_are_one(count: int) -> None:
    record = record_of(lambda _: None, Call(TILED, 0, count))
    y = record.results["y"]
    assert y is not None
    np.testing.assert_array_equal(
        y, in_float64(example().x, example().gamma, example().beta, example().eps)[:count]
    )
    assert not record.holds
    assert not record.damaged


@pytest.mark.parametrize("row", [5, 9, 99_999, 100_000])
def test_a_copy_that_differs_is_recorded(row: int) -> None:
    """The farthest of them, also in the last copy, which is cut off; NaN is farthest."""

    def change(y: Array) -> None:
        y[7, 3] += 0.5
        y[row, 7] = np.nan

    record = record_of(change, Call(TILED, 0, 100_001))
    assert record.holds["y"][0] == str(row - row % 5)
    assert record.results["y"] is not None
    assert np.isnan(record.results["y"][row % 5, 7])


def test_a_sign_of_zero_is_a_difference() -> None:
    rows = np.zeros((3, 4), np.float32)
    array = repeated(rows, 9)
    assert first_change(rows, array) == -1
    array[5, 2] = -0.0
    assert first_change(rows, array) == 5


def test_another_shape_is_a_failure() -> None:
    subject = tv.Subject(lambda x, *_: x[:4])
    record = InProcess(subject).run(example(), Call(TILED, 0, 7))
    assert record.failure == "y is shape (4, 8); it should have the shape (7, 8)"


def test_types_that_are_not_judged_are_compared() -> None:
    subject = tv.Subject(
        lambda x, *_: (x + np.arange(len(x))[:, np.newaxis]).astype(np.longdouble)
    )
    assert InProcess(subject).run(example(), Call(TILED, 0, 7)).holds["y"] == ("5",)


@pytest.mark.parametrize("name", ["x", "gamma"])
def test_damage_to_any_copy_is_seen(name: str) -> None:
    def forward(x: Array, gamma: Array, *_: object) -> Array:
        (x if name == "x" else gamma)[-1] = 7
        return x.copy()

    assert InProcess(tv.Subject(forward)).run(example(), Call(TILED, 0, 13)).damaged == (name,)


def test_the_first_of_many_calls_that_differs_is_recorded() -> None:
    calls: list[None] = []

    def change(y: Array) -> None:
        calls.append(None)
        y[0, 0] += len(calls) == 321

    record = record_of(change, Call(MANY, 0, 3000))
    assert len(calls) == 321
    assert record.holds == {"y": ("320",)}
