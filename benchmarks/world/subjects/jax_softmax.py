"""jax.nn.softmax and log_softmax, and the cross-entropy of optax."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.world.subjects.on_jax import compiled, jax

softmax = compiled(lambda *_: jax.nn.softmax, "jax.nn.softmax", "softmax")
log_softmax = compiled(lambda *_: jax.nn.log_softmax, "jax.nn.log_softmax", "log_softmax")


def _cross_entropy(*_: float) -> Callable[..., Any]:
    function: Callable[..., Any] = import_module("optax").softmax_cross_entropy_with_integer_labels
    return function


cross_entropy = compiled(_cross_entropy, "optax", "cross_entropy")
