"""A kernel in NumPy, what it is given, and what is put in its place."""

import numpy as np

from truenorm.verify.audit.planted import Kernel, planted_kernels
from truenorm.verify.audit.replacing import Replacing, Seen
from truenorm.verify.operations import parse_operation
from truenorm.verify.operations.norms import Norm
from truenorm.verify.types import Array

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 3, 40)).astype(np.float32)
RESIDUAL = RANDOM.normal(size=X.shape).astype(np.float32)
WEIGHT = RANDOM.normal(size=40).astype(np.float32)
DY = RANDOM.normal(size=X.shape).astype(np.float32)


def rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    """Return y; it raises in its own words."""
    if x.shape[-1] != len(weight):
        raise ValueError("its own words")
    y: Array = weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(eps))
    return y


def replacing(
    name: str = "",
    operation: str = "rms_norm",
    eps: float | None = None,
    *,
    remembers: bool = False,
) -> Replacing:
    """Return what puts the right kernel, or a planted one, in the place of another."""
    norm = parse_operation(operation)
    assert isinstance(norm, Norm)
    known = {each.name: each for each in planted_kernels(norm)}
    kernel = Kernel(norm, known[name] if name else None)
    return Replacing(kernel, Seen(), eps, remembers=remembers)


def gradients(dy: Array, x: Array, weight: Array, eps: float) -> tuple[Array, Array]:
    """Return dx and dgamma."""
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    xhat, g = x * r, dy * weight
    dx = r * (g - xhat * (g * xhat).mean(-1, keepdims=True))
    return dx.astype(x.dtype), (dy * xhat).sum((0, 1)).astype(x.dtype)
