"""An imitation of vLLM's tests of RMSNorm: x and the residual are randn/(2H), 1e-2 for all types.

From tests/kernels/core/test_layernorm.py: weight of N(1, 0.1), eps 1e-6, H from 8 to 8192, with 7
and 83 rows (4096 are left out here).
"""

import ml_dtypes
import numpy as np
import pytest

from benchmarks.holes.kernels import Array, add_rms_norm, rms_norm
from benchmarks.holes.references import close, rms_norm_of

SIZES = (8, 768, 769, 5120, 5125, 8192)
TYPES = (np.float16, ml_dtypes.bfloat16, np.float32)


def inputs(rows: int, size: int, kind: type) -> tuple[Array, Array, Array]:
    """Return x, a residual and the weight."""
    random = np.random.default_rng(0)
    x, residual = (random.normal(size=(rows, size)) / (2 * size) for _ in range(2))
    weight = random.normal(1.0, 0.1, size)
    return x.astype(kind), residual.astype(kind), weight.astype(kind)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_rms_norm(size: int) -> None:
    """All types, with 7 and 83 rows."""
    for kind in TYPES:
        for rows in (7, 83):
            x, _, weight = inputs(rows, size, kind)
            close(rms_norm(x, weight, 1e-6), rms_norm_of(x, weight), 1e-2, 1e-2)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_add_rms_norm(size: int) -> None:
    """The same with a residual, whose sum is returned."""
    for kind in TYPES:
        for rows in (7, 83):
            x, residual, weight = inputs(rows, size, kind)
            y, total = add_rms_norm(x, residual, weight, 1e-6)
            close(y, rms_norm_of(x + residual, weight), 1e-2, 1e-2)
            close(total, x + residual, 1e-2, 1e-2)
