"""An imitation of apex's test of layer norm in float16: D = 512, 1e-3, weight 1 and bias 0.

From tests/L0/run_fused_layer_norm/test_fused_layer_norm.py: 16 rows of randn, dy of U(0, 1); y and
dx are compared, the gradients of the parameters are not.
"""

import numpy as np

from benchmarks.holes.kernels import layer_norm, layer_norm_backward
from benchmarks.holes.references import close, layer_norm_of


def test_layer_norm() -> None:
    """Forward and backward."""
    random = np.random.default_rng(42)
    x = random.normal(size=(16, 512)).astype(np.float16)
    dy = random.uniform(size=x.shape).astype(np.float16)
    weight, bias = np.ones(512, np.float16), np.zeros(512, np.float16)
    wide, slopes = x.astype(np.float64), dy.astype(np.float64)
    mean, r = wide.mean(axis=-1), 1 / np.sqrt(wide.var(axis=-1) + 1e-5)
    y, kept_mean, kept_r = layer_norm(x, weight, bias, 1e-5)
    close(y, layer_norm_of(x, weight, bias, mean, r), 1e-3, 1e-3)
    dx, _, _ = layer_norm_backward(dy, x, kept_mean, kept_r, weight)
    xhat = (wide - mean[:, np.newaxis]) * r[:, np.newaxis]
    along = xhat * (slopes * xhat).mean(axis=-1, keepdims=True)
    right = r[:, np.newaxis] * (slopes - slopes.mean(axis=-1, keepdims=True) - along)
    close(dx, right, 1e-3, 1e-3)
