"""JAX: RMS normalization by its formula, compiled; backward by jax.vjp, compiled."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

jax: Any = import_module("jax")
# Without it there is no float64. The types of the other arrays stay what they are.
jax.config.update("jax_enable_x64", True)

Array = NDArray[Any]


def rms_norm(x: Any, gamma: Any, eps: Any) -> Any:
    """Normalize rows in float32 at least, as models written in JAX do, and cast the product."""
    wide = x.astype(jax.numpy.promote_types(x.dtype, np.float32))
    squares = jax.numpy.mean(jax.numpy.square(wide), axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(squares + eps) * gamma.astype(wide.dtype)).astype(x.dtype)


def with_pullback(x: Any, gamma: Any, eps: Any) -> Any:
    """Return y and the function that carries gradients back, with what it keeps."""
    return jax.vjp(lambda x, gamma: rms_norm(x, gamma, eps), x, gamma)


def forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Normalize, and keep what JAX keeps."""
    y, pullback = compiled(x, gamma, eps)
    return np.asarray(y), pullback


compiled = jax.jit(with_pullback)
pull_back = jax.jit(lambda pullback, dy: pullback(dy))


def backward(dy: Array, pullback: Any) -> tuple[Array, ...]:
    """Return the gradients."""
    return tuple(map(np.asarray, pull_back(pullback, dy)))


subject = tv.Subject(
    forward,
    backward,
    name="JAX, by formula",
    dtypes=["float16", "bfloat16", "float32", "float64"],
    seconds=300,
    operation=tv.RMS_NORM,
)
