"""JAX, compiled: jax.nn.standardize with gamma and beta, and RMSNorm by its formula.

JAX has no layer norm of its own. `standardize` has two algorithms; its default is "fast", which
makes one pass over the row. Backward is jax.vjp.
"""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

jax: Any = import_module("jax")
jax.config.update("jax_enable_x64", True)  # float64 needs it; other types stay as they are

Array = NDArray[Any]
DTYPES = ["float16", "bfloat16", "float32", "float64"]


def standardized(algorithm: str, x: Any, gamma: Any, beta: Any, eps: Any) -> Any:
    """Normalize rows, then scale and shift them."""
    return jax.nn.standardize(x, axis=-1, epsilon=eps, algorithm=algorithm) * gamma + beta


def by_formula(_: str, x: Any, gamma: Any, eps: Any) -> Any:
    """Normalize rows in float32 at least, as models written in JAX do, and cast the product."""
    wide = x.astype(jax.numpy.promote_types(x.dtype, np.float32))
    squares = jax.numpy.mean(jax.numpy.square(wide), axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(squares + eps) * gamma.astype(wide.dtype)).astype(x.dtype)


@partial(jax.jit, static_argnums=(0, 1))
def with_pullback(norm: Any, algorithm: str, x: Any, *arguments: Any) -> Any:
    """Return y and the function that computes gradients from dy."""
    *parameters, eps = arguments
    return jax.vjp(lambda x, *rest: norm(algorithm, x, *rest, eps), x, *parameters)


pull_back = jax.jit(lambda pullback, dy: pullback(dy))


def forward(algorithm: str, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
    """Run layer norm; return y and the pullback."""
    y, pullback = with_pullback(standardized, algorithm, x, gamma, beta, eps)
    return np.asarray(y), pullback


def rms_norm_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Run RMSNorm; return y and the pullback."""
    y, pullback = with_pullback(by_formula, "", x, gamma, eps)
    return np.asarray(y), pullback


def backward(dy: Array, pullback: Any) -> tuple[Array, ...]:
    """Return the gradients."""
    return tuple(map(np.asarray, pull_back(pullback, dy)))


fast, stable = (
    tv.Subject(
        partial(forward, algorithm),
        backward,
        name=f"JAX standardize, {algorithm}",
        dtypes=DTYPES,
        seconds=300,
    )
    for algorithm in ("fast", "stable")
)
rms_norm = tv.Subject(
    rms_norm_forward,
    backward,
    name="JAX, by formula",
    dtypes=DTYPES,
    seconds=300,
    operation=tv.RMS_NORM,
)
