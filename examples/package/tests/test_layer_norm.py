"""A test with shapes of this project, and a tolerance derived from the input."""

import numpy as np
import pytest
from plainnorm import kernels

import truenorm.verify as tv


@pytest.mark.parametrize(("rows", "size"), [(4, 60), (6, 768)])
def test_against_exact_answers(rows, size):
    """Rows with an offset, of a size that blocks do not divide, show bugs that rows of 64 hide."""
    random = np.random.default_rng(0)
    x, dy = random.normal(8.0, 1.0, (2, rows, size)).astype(np.float32)
    gamma, beta = random.normal(size=(2, size)).astype(np.float32)
    y, saved = kernels.layer_norm(x, gamma, beta, eps=1e-3)
    dx, dgamma, dbeta = kernels.layer_norm_backward(dy, saved)
    bound = tv.bound("layer_norm", x, gamma, beta, 1e-3, dy=dy)
    bound.assert_close(y=y, dx=dx, dgamma=dgamma, dbeta=dbeta)
