"""An imitation of quack's test of RMSNorm: bfloat16 at 1e-1, dweight at 5e-6*sqrt(M).

From tests/test_rmsnorm.py: x, dy and the float32 weight are randn, rtol is 1e-3, M = 1, 37 and
199 rows (8192 are left out) of N = 192 to 262,144 (here to 1128). Its tolerance of dweight is that
of its later tests.
"""

import ml_dtypes
import numpy as np
import pytest

from benchmarks.holes.kernels import rms_norm, rms_norm_backward
from benchmarks.holes.references import close, rms_norm_gradients, rms_norm_of


@pytest.mark.parametrize("rows", [1, 37, 199])
@pytest.mark.parametrize("size", [192, 760, 1024, 1128])
@pytest.mark.parametrize("eps", [1e-5, 1e-6])
def test_rmsnorm_forward_backward(rows: int, size: int, eps: float) -> None:
    """Forward and backward."""
    random = np.random.default_rng(0)
    shape = (rows, size)
    x, dy = (random.normal(size=shape).astype(ml_dtypes.bfloat16) for _ in range(2))
    weight = random.normal(size=size).astype(np.float32)
    close(rms_norm(x, weight, eps), rms_norm_of(x, weight, eps), 1e-1, 1e-3)
    dx, dweight = rms_norm_backward(dy, x, weight, eps)
    right_dx, right_dweight = rms_norm_gradients(dy, x, weight, eps)
    close(dx, right_dx, 1e-1, 1e-3)
    close(dweight, right_dweight, 5e-6 * rows**0.5, 1e-3)
