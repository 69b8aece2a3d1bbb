"""An imitation of FlashInfer's tests of RMSNorm: float16 at 1e-3, quantized results at 1.

From tests/test_norm.py: x and the weight are randn, eps 1e-6, 1, 19 and 99 rows (989 are left out)
of 111 to 8192 (here to 1024). The tolerance of quantized results is that of its later tests.
"""

import numpy as np
import pytest

from benchmarks.holes.kernels import Array, rms_norm, rms_norm_fp8
from benchmarks.holes.references import close, rms_norm_of

SHAPES = [(rows, size) for rows in (1, 19, 99) for size in (111, 500, 1024)]


def inputs(shape: tuple[int, int]) -> tuple[Array, Array]:
    """Return x and the weight."""
    random = np.random.default_rng(0)
    x, weight = random.normal(size=shape), random.normal(size=shape[1])
    return x.astype(np.float16), weight.astype(np.float16)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norm(shape: tuple[int, int]) -> None:
    """Float16."""
    x, weight = inputs(shape)
    close(rms_norm(x, weight), rms_norm_of(x, weight), 1e-3, 1e-3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norm_quant(shape: tuple[int, int]) -> None:
    """8 bits."""
    x, weight = inputs(shape)
    expected = rms_norm_of(x, weight)
    for scale in (1.0, 10.0):
        close(rms_norm_fp8(x, weight, scale), expected / scale, 1.0, 1.0)
