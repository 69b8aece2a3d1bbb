"""jax.nn.standardize, by both algorithms, with gamma and beta."""

from collections.abc import Callable
from typing import Any

from benchmarks.world.subjects.on_jax import compiled, jax


def _standardized(algorithm: str) -> Callable[[int, float], Callable[..., Any]]:
    def make(_: int, eps: float) -> Callable[..., Any]:
        def function(x: Any, gamma: Any, beta: Any) -> Any:
            rows = jax.nn.standardize(x, axis=-1, epsilon=eps, algorithm=algorithm)
            return rows * gamma + beta

        return function

    return make


fast = compiled(_standardized("fast"), "jax.nn.standardize", "layer_norm")
stable = compiled(_standardized("stable"), "jax.nn.standardize, stable", "layer_norm")
