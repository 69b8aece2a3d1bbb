"""An imitation of KernelBench's 40_LayerNorm in half precision: U(0, 1), D = 4,194,304, 1e-2.

Gamma is 1, beta 0, eps 1e-5, forward only; one row here, and not 16.
"""

import numpy as np

from benchmarks.holes.kernels import layer_norm
from benchmarks.holes.references import close, layer_norm_of

SIZE = 64 * 256 * 256


def test_layer_norm() -> None:
    """Forward."""
    x = np.random.default_rng(0).uniform(size=(1, SIZE)).astype(np.float16)
    weight, bias = np.ones(SIZE, np.float16), np.zeros(SIZE, np.float16)
    wide = x.astype(np.float64)
    mean, r = wide.mean(axis=-1), 1 / np.sqrt(wide.var(axis=-1) + 1e-5)
    y, _, _ = layer_norm(x, weight, bias, 1e-5)
    close(y, layer_norm_of(x, weight, bias, mean, r), 1e-2, 1e-2)
