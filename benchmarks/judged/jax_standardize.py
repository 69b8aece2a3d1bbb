"""JAX: jax.nn.standardize, then gamma and beta, compiled; backward by jax.vjp, compiled.

JAX has no layer normalization of its own. `standardize` has two algorithms, of which "fast" (one
pass over the row) is the one it takes unless told otherwise.
"""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

jax: Any = import_module("jax")
# Without it there is no float64. The types of the other arrays stay what they are.
jax.config.update("jax_enable_x64", True)

Array = NDArray[Any]


def layer_norm(algorithm: str, x: Any, gamma: Any, beta: Any, eps: Any) -> Any:
    """Normalize rows, then scale and shift them."""
    return jax.nn.standardize(x, axis=-1, epsilon=eps, algorithm=algorithm) * gamma + beta


@partial(jax.jit, static_argnums=0)
def with_pullback(algorithm: str, x: Any, gamma: Any, beta: Any, eps: Any) -> Any:
    """Return y and the function that carries gradients back, with what it keeps."""
    return jax.vjp(lambda x, g, b: layer_norm(algorithm, x, g, b, eps), x, gamma, beta)


def forward(algorithm: str, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
    """Normalize, and keep what JAX keeps."""
    y, pullback = with_pullback(algorithm, x, gamma, beta, eps)
    return np.asarray(y), pullback


pull_back = jax.jit(lambda pullback, dy: pullback(dy))


def backward(dy: Array, pullback: Any) -> tuple[Array, ...]:
    """Return the gradients."""
    return tuple(map(np.asarray, pull_back(pullback, dy)))


fast, stable = (
    tv.Subject(
        partial(forward, algorithm),
        backward,
        name=f"JAX standardize, {algorithm}",
        dtypes=["float16", "bfloat16", "float32", "float64"],
        seconds=300,
    )
    for algorithm in ("fast", "stable")
)
