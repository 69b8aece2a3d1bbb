"""Arrays with many rows, long rows or many elements; of the largest, some rows are compared.

Each test takes half a minute or more and up to 13 GB, so they run one at a time.
"""

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.promise.checking import BACKENDS, both_passes, bytes_of
from shared.promise.families import Array, Case

fcntl = pytest.importorskip("fcntl")
pytestmark = [
    pytest.mark.slow(reason="arrays of gigabytes"),
    pytest.mark.skipif("native" not in BACKENDS, reason="needs the C core"),
]

GIGABYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


@pytest.fixture(autouse=True)
def exclusive_memory() -> Iterator[None]:
    """Wait for other processes that run such a test (pytest-xdist)."""
    with (Path(tempfile.gettempdir()) / "truenorm-large").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        gc.collect()
        yield
        gc.collect()


def noise(rows: int, size: int, dtype: Any, seed: int) -> Array:
    """Return some million normal numbers, repeated.

    They repeat after an odd number of rows, so that wrong offsets by powers of two are detected.
    """
    random = np.random.default_rng(seed)
    made = min(rows, 2**23 // size | 1)
    some = random.standard_normal((made, size)).astype(dtype)
    out = np.empty((rows, size), dtype)
    for start in range(0, rows, made):
        out[start : start + made] = some[: rows - start]
    return out


def some_rows(rows: int) -> Array:
    """Return the indices of rows at the ends, in the middle and at random."""
    random = np.random.default_rng(1)
    chosen = [0, 1, rows // 2 - 1, rows // 2, rows - 2, rows - 1, *random.integers(0, rows, 20)]
    return np.unique(np.clip(chosen, 0, rows - 1))


@pytest.mark.parametrize(("rows", "size"), [(10_000_000, 1), (10_000_000, 8), (2, 4_000_000)])
def test_both_backends(rows: int, size: int) -> None:
    x, dy = noise(rows, size, np.float32, 0), noise(rows, size, np.float32, 1)
    gamma, beta = np.random.default_rng(2).standard_normal((2, size)).astype(x.dtype)
    case = Case("large", x, gamma, beta, dy, 1e-5)
    native, reference = (both_passes(case, backend) for backend in ("native", "reference"))
    assert bytes_of(*native) == bytes_of(*reference)


@pytest.mark.skipif(GIGABYTES < 15, reason="needs 13 GB")
class TestMoreThan2To31Elements:
    """float16: 4 GB for each array."""

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
        assert tn.layer_norm(x, gamma, gamma, out=out, backend="native") is out
        expected = tn.layer_norm(x[rows], gamma, gamma, backend="reference")
        assert bytes_of(out[rows]) == bytes_of(expected)

    @pytest.mark.parametrize("rounding", ["correct", "fast"])
    def test_backward(self, x: Array, rows: Array, rounding: str) -> None:
        """With dy = 0 in all rows but one, dgamma and dbeta are those of that row."""
        gamma = np.random.default_rng(2).standard_normal(self.SIZE).astype(np.float16)
        out = np.zeros_like(x)
        _, saved = tn.layer_norm_forward(
            x, gamma, gamma, out=out, rounding=rounding, backend="native"
        )
        dy = out
        dy[:] = 0
        last = self.ROWS - 1
        dy[last] = x[0]
        _, part = tn.layer_norm_forward(x[rows], gamma, gamma, backend="reference")
        expected = tn.layer_norm_backward(dy[rows], part, backend="reference")
        gradients = tn.layer_norm_backward(dy, saved, backend="native")
        assert not gradients.dx[:last].any()
        if rounding == "correct":
            assert bytes_of(gradients.dx[rows], *gradients[1:]) == bytes_of(*expected)
