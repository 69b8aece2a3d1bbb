"""The example with norms for JAX: gradients, and the transformations of JAX."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")
jnp: Any = import_module("jax.numpy")

import truenorm as tn

EXAMPLE = Path(__file__).parents[2] / "examples" / "jax_layer.py"
example: Any = import_module("examples.jax_layer")
DTYPES = ("float16", "bfloat16", "float32", "float64")
PASSES: dict[str, tuple[Any, Any, int]] = {
    "layer_norm": (tn.layer_norm_forward, tn.layer_norm_backward, 2),
    "rms_norm": (tn.rms_norm_forward, tn.rms_norm_backward, 1),
}


@pytest.fixture(autouse=True)
def float64() -> Any:
    with jax.enable_x64(True):
        yield


def arrays(name: str, dtype: str, *shape: int) -> list[Any]:
    """Return dy, x and the parameters."""
    random = np.random.default_rng(0)
    rows = [random.standard_normal(shape) for _ in range(2)]
    rows += [random.standard_normal(shape[-1]) for _ in range(PASSES[name][2])]
    return [jnp.asarray(each, dtype) for each in rows]


def expected(name: str, dy: Any, *inputs: Any) -> list[Any]:
    """Return y and the gradients by truenorm, called without JAX."""
    forward, backward, _ = PASSES[name]
    y, saved = forward(*map(np.asarray, inputs))
    return [y, *backward(np.asarray(dy), saved)[: len(inputs)]]


def assert_same_bits(results: Any, right: Any) -> None:
    for result, wanted in zip(results, right, strict=True):
        assert result.dtype == wanted.dtype
        assert np.asarray(result).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PASSES)
def test_both_passes(name: str, dtype: str, *, compiled: bool) -> None:
    def passes(dy: Any, *inputs: Any) -> Any:
        y, backward = jax.vjp(getattr(example, name), *inputs)
        return y, *backward(dy)

    inputs = arrays(name, dtype, 3, 5, 32)
    results = (jax.jit(passes) if compiled else passes)(*inputs)
    assert_same_bits(results, expected(name, *inputs))


@pytest.mark.parametrize("name", PASSES)
def test_gradients_are_those_of_jax(name: str) -> None:
    """In float64 both are right to a small multiple of 2^-53 of the largest element."""
    dy, *inputs = arrays(name, "float64", 3, 5, 32)
    norms = (getattr(example, name), getattr(example, f"{name}_of_jax"))
    gradients, right = (jax.vjp(norm, *inputs)[1](dy) for norm in norms)
    for gradient, wanted in zip(gradients, right, strict=True):
        assert float(jnp.abs(gradient - wanted).max()) <= 1e-14 * float(jnp.abs(wanted).max())


@pytest.mark.parametrize("name", PASSES)
def test_vmap(name: str) -> None:
    """Of x alone, and of the gradients of each example."""
    dy, x, *parameters = arrays(name, "float32", 4, 5, 32)
    norm = getattr(example, name)
    y = jax.vmap(lambda each: norm(each, *parameters))(x)
    assert_same_bits([y], expected(name, dy, x, *parameters)[:1])

    def gradients_of(dy: Any, x: Any) -> Any:
        return jax.vjp(norm, x, *parameters)[1](dy)

    of_examples = jax.jit(jax.vmap(gradients_of))(dy, x)
    for k in range(4):
        right = expected(name, dy[k], x[k], *parameters)[1:]
        assert_same_bits([each[k] for each in of_examples], right)


def test_options() -> None:
    norm = example.norm_of(tn.layer_norm_forward, tn.layer_norm_backward, axis=0, eps=0.5)
    x = arrays("layer_norm", "float32", 5, 32)[1]
    right = tn.layer_norm(np.asarray(x), axis=0, eps=0.5)
    assert_same_bits([jax.jit(norm)(x)], [right])


def test_large_arrays() -> None:
    """JAX runs a callback with large arguments on another thread."""
    inputs = arrays("rms_norm", "float32", 2048, 1024)
    gradients = jax.jit(lambda dy, *rest: jax.vjp(example.rms_norm, *rest)[1](dy))(*inputs)
    assert_same_bits(gradients, expected("rms_norm", *inputs)[1:])


def test_callbacks_without_a_thread() -> None:
    """They run on threads that flush subnormal numbers to zero."""
    x = arrays("rms_norm", "float32", 64, 32)[1]
    raised = []

    def rms_norm(x: Any) -> Any:
        try:
            tn.rms_norm(x)
        except RuntimeError as error:
            raised.append(str(error))
        return np.asarray(x)

    jax.jit(lambda x: jax.pure_callback(rms_norm, x, x))(x).block_until_ready()
    assert "JAX runs callbacks on such threads: call truenorm on another thread" in raised[0]


def test_program() -> None:
    program = [sys.executable, "-W", "error", str(EXAMPLE)]
    completed = subprocess.run(program, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == ["layer_norm"] * 4 + ["rms_norm"] * 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_not_written(dtype: str) -> None:
    """Arrays of JAX are immutable."""
    x = jnp.ones((4, 8), dtype)
    with pytest.raises(ValueError, match=r"out must be writable, got a ArrayImpl .+ NumPy array"):
        tn.layer_norm(x, out=x)
    assert bool((x == 1).all())
