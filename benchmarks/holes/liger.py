"""An imitation of Liger's test of RMSNorm: bfloat16 at 2e-1 and 2e-2, weight 1.

From test/transformers/test_rms_norm.py: x and dy are randn; y, dx and dweight are compared. Of its
shapes here are the smallest with a round and with an odd D; the tolerances are those of its later
tests.
"""

import ml_dtypes
import numpy as np
import pytest

from benchmarks.holes.kernels import rms_norm, rms_norm_backward
from benchmarks.holes.references import close, rms_norm_gradients, rms_norm_of


@pytest.mark.parametrize("shape", [(2, 128, 512), (5, 123, 123)], ids=str)
def test_correctness(shape: tuple[int, int, int]) -> None:
    """Forward and backward."""
    random = np.random.default_rng(0)
    x, dy = (random.normal(size=shape).astype(ml_dtypes.bfloat16) for _ in range(2))
    weight = np.ones(shape[-1], ml_dtypes.bfloat16)
    close(rms_norm(x, weight, 1e-6), rms_norm_of(x, weight), 2e-1, 2e-2)
    for found, right in zip(
        rms_norm_backward(dy, x, weight, 1e-6), rms_norm_gradients(dy, x, weight), strict=True
    ):
        close(found, right, 2e-1, 2e-2)
