"""The bare machine moves and adds what it is given, in parts on several threads."""

import shutil
from typing import Any

import numpy as np
import pytest

from benchmarks import bare

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.parametrize("dtype", [np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (256, 1024)])
@pytest.mark.parametrize("threads", [1, 3])
def test_copy_and_triad(dtype: Any, shape: tuple[int, ...], threads: int) -> None:
    random = np.random.default_rng(0)
    x, dy = (random.integers(0, 100, shape).astype(dtype) for _ in range(2))
    out = np.zeros(shape, dtype)
    contestants = bare.Bare(threads).contestants(x, dy, out)
    contestants["copy"]()
    np.testing.assert_array_equal(out, x)
    contestants["triad"]()
    np.testing.assert_array_equal(out, x + dy)
