"""An imitation of Transformer Engine's test of layer norm: y from the kernel's own statistics.

From tests/cpp/operator/test_normalization.cu: uniform inputs, eps 1e-5, rows of 229 and 541
(longer ones are left out), the statistics to 5e-5, y in bfloat16 to 1e-2, gradients to 5e-4, which
are in float32 here.
"""

import ml_dtypes
import numpy as np
import pytest

from benchmarks.holes.kernels import Array, layer_norm, layer_norm_backward
from benchmarks.holes.references import close, layer_norm_of

SHAPES = [(71, 229), (29, 541)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float32], ids=["bfloat16", "float32"])
def test_norm(shape: tuple[int, int], kind: type) -> None:
    """Statistics against a reference, y and the gradients against what they give."""
    random = np.random.default_rng(0)
    arrays: list[Array] = [random.uniform(-2, 1, shape).astype(kind) for _ in range(2)]
    arrays += [random.uniform(-2, 1, shape[1]).astype(kind) for _ in range(2)]
    x, dy, weight, bias = arrays
    y, mean, rstd = layer_norm(x, weight, bias, 1e-5)
    wide = x.astype(np.float64)
    close(mean, wide.mean(axis=-1), 1e-6, 5e-5)
    close(rstd, 1 / np.sqrt(wide.var(axis=-1) + 1e-5), 1e-6, 5e-5)
    close(y, layer_norm_of(x, weight, bias, mean, rstd), 1e-2, 1e-2)
    if kind is np.float32:
        dx, dweight, dbias = layer_norm_backward(dy, x, mean, rstd, weight)
        slopes, r = dy.astype(np.float64), rstd[:, np.newaxis]
        xhat, g = (wide - mean[:, np.newaxis]) * r, slopes * weight
        along = xhat * (g * xhat).mean(axis=-1, keepdims=True)
        close(dx, r * (g - g.mean(axis=-1, keepdims=True) - along), 5e-4, 5e-4)
        close(dweight, (slopes * xhat).sum(axis=0), 5e-4, 5e-4)
        close(dbias, slopes.sum(axis=0), 5e-4, 5e-4)
