"""Arrays that are large in one way or another, each looked at in some rows.

They need up to 20 GB and a minute or so each.
"""

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

import truenorm as tn
from promise.families import Array

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def memory_is_freed() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


def noise(rows: int, size: int, dtype: Any, seed: int) -> Array:
    """Return normal numbers, of which some rows are made and then repeated with other scales."""
    random = np.random.default_rng(seed)
    made = max(1, min(rows, 2**22 // size))
    some = random.standard_normal((made, size)).astype(dtype)
    out = np.empty((rows, size), dtype)
    scales = [0.5, 1.0, 2.0]  # exact in every type
    for k, start in enumerate(range(0, rows, made)):
        stop = min(start + made, rows)
        np.multiply(some[: stop - start], dtype(scales[k % 3]), out=out[start:stop])
    return out


def some_rows(rows: int) -> Array:
    """Return the first, the last and those around multiples of 2**31 elements and in between."""
    random = np.random.default_rng(1)
    chosen = [0, 1, rows // 2 - 1, rows // 2, rows - 2, rows - 1, *random.integers(0, rows, 20)]
    return np.unique(np.clip(chosen, 0, rows - 1))


def assert_rows(found: Array, expected: Array) -> None:
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


def check(x: Array, dy: Array, *, all_columns: bool) -> None:
    """Do both passes, and compare y and dx in some rows, dgamma and dbeta everywhere if asked."""
    size = x.shape[1]
    random = np.random.default_rng(2)
    gamma, beta = random.standard_normal((2, size)).astype(x.dtype)
    y, saved = tn.layer_norm_forward(x, gamma, beta, backend="fused")
    rows = some_rows(len(x))
    right, part = tn.layer_norm_forward(x[rows], gamma, beta, backend="reference")
    assert_rows(y[rows], right)
    del y
    dx, dgamma, dbeta = tn.layer_norm_backward(dy, saved, backend="fused")
    assert_rows(dx[rows], tn.layer_norm_backward(dy[rows], part, backend="reference").dx)
    assert dgamma is not None
    assert dbeta is not None
    if all_columns:
        _, saved = tn.layer_norm_forward(x, gamma, beta, backend="reference")
        _, right_dgamma, right_dbeta = tn.layer_norm_backward(dy, saved, backend="reference")
        assert right_dgamma is not None
        assert right_dbeta is not None
        assert_rows(dgamma, right_dgamma)
        assert_rows(dbeta, right_dbeta)


def test_rows_of_one_element() -> None:
    """20 million of them; y is beta, and dx is zero."""
    x, dy = noise(20_000_000, 1, np.float32, 0), noise(20_000_000, 1, np.float32, 1)
    check(x, dy, all_columns=True)


def test_rows_of_four_million_elements() -> None:
    x, dy = noise(10, 4_000_000, np.float32, 0), noise(10, 4_000_000, np.float32, 1)
    check(x, dy, all_columns=True)


def test_ten_million_rows() -> None:
    x, dy = noise(10_000_000, 8, np.float32, 0), noise(10_000_000, 8, np.float32, 1)
    check(x, dy, all_columns=True)


class TestMoreThan2To31Elements:
    """float16: 4.3 GB for each array."""

    ROWS, SIZE = 2**31 // 4096 + 1001, 4096

    @pytest.fixture
    def x(self) -> Array:
        return noise(self.ROWS, self.SIZE, np.float16, 0)

    @pytest.fixture
    def rows(self) -> Array:
        edge = 2**31 // self.SIZE
        return np.unique(np.concatenate([some_rows(self.ROWS), [edge - 1, edge, edge + 1]]))

    def test_forward_into_an_array(self, x: Array, rows: Array) -> None:
        gamma = np.random.default_rng(2).standard_normal(self.SIZE).astype(np.float16)
        out = np.zeros_like(x)
        assert tn.layer_norm(x, gamma, gamma, out=out, backend="fused") is out
        assert_rows(out[rows], tn.layer_norm(x[rows], gamma, gamma, backend="reference"))

    @pytest.mark.parametrize("rounding", ["correct", "fast"])
    def test_backward(self, x: Array, rows: Array, rounding: str) -> None:
        """Where dy is 1 in one row and 0 elsewhere, dgamma and dbeta are those of that row."""
        gamma = np.random.default_rng(2).standard_normal(self.SIZE).astype(np.float16)
        out = np.zeros_like(x)
        _, saved = tn.layer_norm_forward(
            x, gamma, gamma, out=out, rounding=rounding, backend="fused"
        )
        dy = out
        dy[:] = 0
        last = self.ROWS - 1
        dy[last] = x[0]
        _, part = tn.layer_norm_forward(x[rows], gamma, gamma, backend="reference")
        right = tn.layer_norm_backward(dy[rows], part, backend="reference")
        found = tn.layer_norm_backward(dy, saved, backend="fused")
        assert not found.dx[:last].any()
        if rounding == "correct":
            assert_rows(found.dx[rows], right.dx)
            for one, other in zip(found[1:], right[1:], strict=True):
                assert one is not None
                assert other is not None
                assert_rows(one, other)
