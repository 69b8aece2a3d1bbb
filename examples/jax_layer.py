"""Norms for JAX whose forward and backward passes are those of truenorm, on the CPU.

``python examples/jax_layer.py`` compares their gradients with those of the formula in JAX.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax  # type: ignore[import-not-found]
import jax.numpy as jnp  # type: ignore[import-not-found]

import truenorm as tn

Array = Any

# JAX runs callbacks on threads that flush subnormal numbers to zero, where truenorm raises. A
# thread has the mode of the one that starts it: start one here.
THREAD = ThreadPoolExecutor(1)
THREAD.submit(int).result()


def norm_of(forward: Callable[..., Any], backward: Callable[..., Any], **options: Any) -> Any:
    """Return a function of x and the parameters, from both passes of truenorm."""

    def y_of(*inputs: Array) -> Any:
        return forward(*inputs, **options)[0]

    def gradients_of(dy: Array, *inputs: Array) -> Any:
        # Only arrays pass from one callback to the next: compute the saved statistics again.
        return backward(dy, forward(*inputs, **options)[1])[: len(inputs)]

    norm = jax.custom_vjp(lambda *inputs: call(y_of, inputs[0], *inputs))
    norm.defvjp(
        lambda *inputs: (norm(*inputs), inputs),
        lambda inputs, dy: call(gradients_of, inputs, dy, *inputs),
    )
    return norm


def call(function: Callable[..., Any], results: Any, *arrays: Array) -> Any:
    """Call a function of truenorm, whose results have the shapes and types of `results`."""

    def on_thread(*arrays: Array) -> Any:
        return THREAD.submit(function, *arrays).result()

    shapes = jax.tree.map(lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype), results)
    return jax.pure_callback(on_thread, shapes, *arrays, vmap_method="sequential")


layer_norm = norm_of(tn.layer_norm_forward, tn.layer_norm_backward, eps=1e-5)
rms_norm = norm_of(tn.rms_norm_forward, tn.rms_norm_backward, eps=1e-5)


def layer_norm_of_jax(x: Array, gamma: Array, beta: Array) -> Array:
    """Compute layer norm by functions of JAX."""
    return jax.nn.standardize(x, epsilon=1e-5) * gamma + beta


def rms_norm_of_jax(x: Array, gamma: Array) -> Array:
    """Compute RMSNorm by functions of JAX."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * gamma


@jax.jit  # type: ignore[untyped-decorator]
def differences(dy: Array, *inputs: Array) -> Any:
    """Return the largest difference of each gradient, relative to its largest element."""
    pair = (layer_norm, layer_norm_of_jax) if len(inputs) == 3 else (rms_norm, rms_norm_of_jax)
    gradients, expected = (jax.vjp(norm, *inputs)[1](dy) for norm in pair)
    return jax.tree.map(lambda a, b: jnp.abs(a - b).max() / jnp.abs(b).max(), gradients, expected)


def main() -> None:
    """Compare the gradients of both norms, for four types."""
    jax.config.update("jax_enable_x64", True)
    x, dy = jax.random.normal(jax.random.key(0), (2, 8, 64, 256), jnp.float64)
    gamma, beta = jnp.ones(256), jnp.zeros(256)
    for name, inputs in (("layer_norm", (x, gamma, beta)), ("rms_norm", (x, gamma))):
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            largest = differences(*(each.astype(dtype) for each in (dy, *inputs)))
            pairs = zip(("x", "gamma", "beta"), largest, strict=False)
            print(f"{name}, {dtype}:", ", ".join(f"{each} {float(d):.1e}" for each, d in pairs))


if __name__ == "__main__":
    main()
