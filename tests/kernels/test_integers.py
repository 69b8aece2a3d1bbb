"""Columns of dgamma that rows cancel: known without integers, and never taken for one another."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.calls import call_for, rows_for
from promise.families import Case
from truenorm.exact import FLOAT64
from truenorm.kernels import fallback

Float64 = NDArray[np.float64]


def column_sums(dy: Float64, x: Float64) -> list[float]:
    call = call_for(Case("columns", x, None, None, dy, 1e-5))
    columns = np.arange(x.shape[1])
    return fallback.column_sums(rows_for(dy), rows_for(x), columns, call, FLOAT64)


def in_all_columns(dy: list[float]) -> Float64:
    return np.repeat(np.array(dy)[:, np.newaxis], 3, axis=1)


@pytest.fixture
def no_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> float:
        raise AssertionError("a column that cancels went through the sum of roots")

    monkeypatch.setattr(fallback, "round_sum_of_roots", refuse)


X = np.array([[1.0, -2.0, 5.0], [0.0, 3.0, 3.5]])


@pytest.mark.usefixtures("no_roots")
@pytest.mark.parametrize(
    ("x", "dy"),
    [
        (np.vstack([X, -X]), [1.0, 1.0, 1.0, 1.0]),
        (np.vstack([X, X]), [1.0, 2.0, -1.0, -2.0]),
        (np.vstack([X[:1], X[:1], -X[:1]]), [1.0, 2.0, 3.0]),
        (np.zeros((2, 3)), [0.0, 0.0]),
    ],
    ids=["x mirrored, with a zero of either sign", "dy mirrored", "three rows", "zeros"],
)
def test_rows_that_cancel(x: Float64, dy: list[float]) -> None:
    assert column_sums(in_all_columns(dy), x) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("x", "dy"),
    [
        (np.vstack([X[:1], -X[:1]]), [1.0, 1.0 + 2.0**-52]),
        (np.vstack([X[:1], X[:1], X[:1]]), [1e-320, 1e-320, -1e-320]),
        (np.vstack([X[:1], X[:1], -X[:1]]), [1e308, 1e308, 1e308]),
        (np.vstack([X[:1], X[:1] + 1, X[:1] * 2]), [1.0, 1.0, 1.0]),
        (np.vstack([X[:1], -X[1:]]), [1.0, 1.0]),
    ],
    ids=["an ulp off", "subnormal", "overflow in between", "other rows", "two rows"],
)
def test_rows_that_almost_cancel(x: Float64, dy: list[float]) -> None:
    assert 0.0 not in column_sums(in_all_columns(dy), x)
