"""A common test of a norm; an audit shows which wrong kernels it accepts.

truenorm audit test_norm.py --replace norm_kernel:rms_norm --operation rms_norm
"""

import numpy as np
from norm_kernel import rms_norm


def test_rms_norm() -> None:
    """Test normal data with weight 1 and a tolerance of 1e-2."""
    x = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    weight = np.ones(64, np.float32)
    expected = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(rms_norm(x, weight), expected, rtol=1e-2, atol=1e-2)
