"""Tests with the inputs and tolerances of other projects, which `benchmarks.holes` audits.

Each test imitates those of one project: shapes, distributions and tolerances are theirs, the
arithmetic is NumPy's, and no line of theirs is in it. The tests call the correct kernels at the
top of this file; so nothing is said of the kernels of these projects.
"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import truenorm.verify as tv

Array = NDArray[Any]


def rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    """Return y, computed in float32 and rounded once."""
    rows = x.astype(np.float32)
    r = 1 / np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + np.float32(eps))
    y: Array = (rows * r * weight.astype(np.float32)).astype(x.dtype)
    return y


def add_rms_norm(
    x: Array, residual: Array, weight: Array, eps: float = 1e-6
) -> tuple[Array, Array]:
    """Return y and the sum that is normalized."""
    total: Array = x + residual
    return rms_norm(total, weight, eps), total


def rms_norm_fp8(x: Array, weight: Array, scale: float, eps: float = 1e-6) -> Array:
    """Return y divided by a scale, in 8 bits."""
    y = rms_norm(x, weight, eps).astype(np.float32) / np.float32(scale)
    quantized: Array = y.astype(ml_dtypes.float8_e4m3fn)
    return quantized


def rms_norm_backward(dy: Array, x: Array, weight: Array, eps: float = 1e-6) -> Any:
    """Return dx and dweight."""
    rows, wide = x.astype(np.float32), dy.astype(np.float32)
    r = 1 / np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + np.float32(eps))
    xhat, g = rows * r, wide * weight.astype(np.float32)
    dx = r * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True))
    dweight = (wide * xhat).reshape(-1, x.shape[-1]).sum(axis=0)
    return dx.astype(x.dtype), dweight.astype(weight.dtype)


def layer_norm(x: Array, weight: Array, bias: Array, eps: float = 1e-5) -> Any:
    """Return y, and the mean and 1/sqrt(var + eps) of each row."""
    rows = x.astype(np.float32)
    mean = rows.mean(axis=-1, keepdims=True)
    r = 1 / np.sqrt(((rows - mean) ** 2).mean(axis=-1, keepdims=True) + np.float32(eps))
    y = (rows - mean) * r * weight.astype(np.float32) + bias.astype(np.float32)
    return y.astype(x.dtype), mean[..., 0], r[..., 0]


def layer_norm_backward(dy: Array, x: Array, mean: Array, rstd: Array, weight: Array) -> Any:
    """Return dx, dweight and dbias."""
    rows, wide, r = x.astype(np.float32), dy.astype(np.float32), rstd[..., np.newaxis]
    xhat, g = (rows - mean[..., np.newaxis]) * r, wide * weight.astype(np.float32)
    along = xhat * (g * xhat).mean(axis=-1, keepdims=True)
    dx = r * (g - g.mean(axis=-1, keepdims=True) - along)
    return dx.astype(x.dtype), (wide * xhat).sum(axis=0).astype(weight.dtype), wide.sum(axis=0)


def close(actual: Array, expected: Array, atol: float, rtol: float) -> None:
    """Raise unless |actual - expected| is at most atol + rtol*|expected| everywhere."""
    result, right = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(result, right, atol=atol, rtol=rtol)


def exact_rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    """Return y in float64."""
    rows = x.astype(np.float64)
    y: Array = rows / np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + eps)
    return y * weight.astype(np.float64)


def exact_rms_norm_backward(dy: Array, x: Array, weight: Array, eps: float = 1e-6) -> Any:
    """Return dx and dweight in float64."""
    rows, wide = x.astype(np.float64), dy.astype(np.float64)
    r = 1 / np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + eps)
    xhat, g = rows * r, wide * weight.astype(np.float64)
    dx = r * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True))
    return dx, (wide * xhat).reshape(-1, x.shape[-1]).sum(axis=0)


def statistics(x: Array, eps: float = 1e-5) -> tuple[Array, Array]:
    """Return mean and 1/sqrt(var + eps) of each row, in float64."""
    rows = x.astype(np.float64)
    return rows.mean(axis=-1), 1 / np.sqrt(rows.var(axis=-1) + eps)


def exact_layer_norm(x: Array, weight: Array, bias: Array, mean: Array, rstd: Array) -> Array:
    """Return y in float64, from given statistics."""
    xhat = (x.astype(np.float64) - mean[..., np.newaxis]) * rstd[..., np.newaxis]
    y: Array = xhat * weight.astype(np.float64) + bias.astype(np.float64)
    return y


def exact_layer_norm_backward(dy: Array, x: Array, mean: Array, rstd: Array, weight: Array) -> Any:
    """Return dx, dweight and dbias in float64, from given statistics."""
    wide, r = dy.astype(np.float64), rstd[:, np.newaxis]
    xhat, g = (x.astype(np.float64) - mean[:, np.newaxis]) * r, wide * weight.astype(np.float64)
    along = xhat * (g * xhat).mean(axis=-1, keepdims=True)
    dx = r * (g - g.mean(axis=-1, keepdims=True) - along)
    return dx, (wide * xhat).sum(axis=0), wide.sum(axis=0)


VLLM_SIZES = (8, 768, 769, 5120, 5125, 8192)
VLLM_TYPES = (np.float16, ml_dtypes.bfloat16, np.float32)


def vllm_inputs(rows: int, size: int, kind: type) -> tuple[Array, Array, Array]:
    """Return x, a residual and the weight."""
    random = np.random.default_rng(0)
    x, residual = (random.normal(size=(rows, size)) / (2 * size) for _ in range(2))
    weight = random.normal(1.0, 0.1, size)
    return x.astype(kind), residual.astype(kind), weight.astype(kind)


@pytest.mark.parametrize("size", VLLM_SIZES, ids=str)
def test_vllm_rms_norm(size: int) -> None:
    """Imitate vLLM: x is randn/(2H), 1e-2 for all types.

    From tests/kernels/core/test_layernorm.py: weight of N(1, 0.1), eps 1e-6, H from 8 to 8192,
    with 7 and 83 rows (4096 are left out here).
    """
    for kind in VLLM_TYPES:
        for rows in (7, 83):
            x, _, weight = vllm_inputs(rows, size, kind)
            close(rms_norm(x, weight, 1e-6), exact_rms_norm(x, weight), 1e-2, 1e-2)


@pytest.mark.parametrize("size", VLLM_SIZES, ids=str)
def test_vllm_add_rms_norm(size: int) -> None:
    """Imitate vLLM with a residual, whose sum with x is returned."""
    for kind in VLLM_TYPES:
        for rows in (7, 83):
            x, residual, weight = vllm_inputs(rows, size, kind)
            y, total = add_rms_norm(x, residual, weight, 1e-6)
            close(y, exact_rms_norm(x + residual, weight), 1e-2, 1e-2)
            close(total, x + residual, 1e-2, 1e-2)


FLASHINFER_SHAPES = [(rows, size) for rows in (1, 19, 99) for size in (111, 500, 1024)]


def flashinfer_inputs(shape: tuple[int, int]) -> tuple[Array, Array]:
    """Return x and the weight."""
    random = np.random.default_rng(0)
    x, weight = random.normal(size=shape), random.normal(size=shape[1])
    return x.astype(np.float16), weight.astype(np.float16)


@pytest.mark.parametrize("shape", FLASHINFER_SHAPES, ids=str)
def test_flashinfer_norm(shape: tuple[int, int]) -> None:
    """Imitate FlashInfer: float16 at 1e-3.

    From tests/test_norm.py: x and the weight are randn, eps 1e-6, 1, 19 and 99 rows (989 are left
    out) of 111 to 8192 (here to 1024).
    """
    x, weight = flashinfer_inputs(shape)
    close(rms_norm(x, weight), exact_rms_norm(x, weight), 1e-3, 1e-3)


@pytest.mark.parametrize("shape", FLASHINFER_SHAPES, ids=str)
def test_flashinfer_norm_quant(shape: tuple[int, int]) -> None:
    """Imitate FlashInfer in 8 bits, with the tolerance 1 of its later tests."""
    x, weight = flashinfer_inputs(shape)
    expected = exact_rms_norm(x, weight)
    for scale in (1.0, 10.0):
        close(rms_norm_fp8(x, weight, scale), expected / scale, 1.0, 1.0)


@pytest.mark.parametrize("shape", [(2, 128, 512), (5, 123, 123)], ids=str)
def test_liger(shape: tuple[int, int, int]) -> None:
    """Imitate Liger: bfloat16 at 2e-1 and 2e-2, weight 1.

    From test/transformers/test_rms_norm.py: x and dy are randn; y, dx and dweight are compared.
    Shapes are the smallest with an even and with an odd D; tolerances those of its later tests.
    """
    random = np.random.default_rng(0)
    x, dy = (random.normal(size=shape).astype(ml_dtypes.bfloat16) for _ in range(2))
    weight = np.ones(shape[-1], ml_dtypes.bfloat16)
    close(rms_norm(x, weight, 1e-6), exact_rms_norm(x, weight), 2e-1, 2e-2)
    for result, right in zip(
        rms_norm_backward(dy, x, weight, 1e-6), exact_rms_norm_backward(dy, x, weight), strict=True
    ):
        close(result, right, 2e-1, 2e-2)


@pytest.mark.parametrize("rows", [1, 37, 199])
@pytest.mark.parametrize("size", [192, 760, 1024, 1128])
@pytest.mark.parametrize("eps", [1e-5, 1e-6])
def test_quack(rows: int, size: int, eps: float) -> None:
    """Imitate quack: bfloat16 at 1e-1, dweight at 5e-6*sqrt(M).

    From tests/test_rmsnorm.py: x, dy and the float32 weight are randn, rtol is 1e-3, M = 1, 37 and
    199 rows (8192 are left out) of N = 192 to 262,144 (here to 1128). The tolerance of dweight is
    that of its later tests.
    """
    random = np.random.default_rng(0)
    x, dy = (random.normal(size=(rows, size)).astype(ml_dtypes.bfloat16) for _ in range(2))
    weight = random.normal(size=size).astype(np.float32)
    close(rms_norm(x, weight, eps), exact_rms_norm(x, weight, eps), 1e-1, 1e-3)
    dx, dweight = rms_norm_backward(dy, x, weight, eps)
    right_dx, right_dweight = exact_rms_norm_backward(dy, x, weight, eps)
    close(dx, right_dx, 1e-1, 1e-3)
    close(dweight, right_dweight, 5e-6 * rows**0.5, 1e-3)


@pytest.mark.parametrize("shape", [(71, 229), (29, 541)], ids=str)
@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float32], ids=["bfloat16", "float32"])
def test_transformer_engine(shape: tuple[int, int], kind: type) -> None:
    """Imitate Transformer Engine: y is computed from the kernel's own statistics.

    From tests/cpp/operator/test_normalization.cu: uniform inputs, eps 1e-5, rows of 229 and 541
    (longer ones are left out), the statistics to 5e-5, y in bfloat16 to 1e-2, gradients to 5e-4,
    which are in float32 here.
    """
    random = np.random.default_rng(0)
    sizes = (shape, shape, shape[1:], shape[1:])
    arrays: list[Array] = [random.uniform(-2, 1, size).astype(kind) for size in sizes]
    x, dy, weight, bias = arrays
    y, mean, rstd = layer_norm(x, weight, bias, 1e-5)
    for result, right in zip((mean, rstd), statistics(x), strict=True):
        close(result, right, 1e-6, 5e-5)
    close(y, exact_layer_norm(x, weight, bias, mean, rstd), 1e-2, 1e-2)
    if kind is np.float32:
        gradients = layer_norm_backward(dy, x, mean, rstd, weight)
        answers = exact_layer_norm_backward(dy, x, mean, rstd, weight)
        for result, right in zip(gradients, answers, strict=True):
            close(result, right, 5e-4, 5e-4)


def test_apex() -> None:
    """Imitate apex in float16: D = 512, 1e-3, weight 1 and bias 0.

    From tests/L0/run_fused_layer_norm/test_fused_layer_norm.py: 16 rows of randn, dy of U(0, 1); y
    and dx are compared, the gradients of the parameters are not.
    """
    random = np.random.default_rng(42)
    x = random.normal(size=(16, 512)).astype(np.float16)
    dy = random.uniform(size=x.shape).astype(np.float16)
    weight, bias = np.ones(512, np.float16), np.zeros(512, np.float16)
    exact = statistics(x)
    y, mean, rstd = layer_norm(x, weight, bias, 1e-5)
    close(y, exact_layer_norm(x, weight, bias, *exact), 1e-3, 1e-3)
    dx, _, _ = layer_norm_backward(dy, x, mean, rstd, weight)
    close(dx, exact_layer_norm_backward(dy, x, *exact, weight)[0], 1e-3, 1e-3)


def test_kernelbench() -> None:
    """Imitate KernelBench's 40_LayerNorm in half precision: U(0, 1), D = 4,194,304, 1e-2.

    Gamma is 1, beta 0, eps 1e-5, forward only; one row here instead of 16.
    """
    size = 64 * 256 * 256
    x = np.random.default_rng(0).uniform(size=(1, size)).astype(np.float16)
    weight, bias = np.ones(size, np.float16), np.zeros(size, np.float16)
    y, _, _ = layer_norm(x, weight, bias, 1e-5)
    close(y, exact_layer_norm(x, weight, bias, *statistics(x)), 1e-2, 1e-2)


SPREADS = (1.0, 1e-3)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(300, 45), (4, 769)], ids=str)
def test_strict_rms_norm(shape: tuple[int, int], spread: float, kind: type) -> None:
    """Use `truenorm.verify.bound`: many rows for dgamma, and rows too long for 16-bit sums."""
    random = np.random.default_rng(0)
    x = (0.5 + random.normal(size=shape)).astype(kind) * kind(spread)
    dy: Array = (1 + random.normal(size=shape)).astype(kind)
    weight: Array = random.normal(size=shape[1]).astype(kind)
    for eps in (1e-5, 1e-6):
        dx, dweight = rms_norm_backward(dy, x, weight, eps)
        bound = tv.bound("rms_norm", x, weight, eps=eps, dy=dy)
        bound.assert_close(y=rms_norm(x, weight, eps), dx=dx, dgamma=dweight)


@pytest.mark.parametrize("spread", SPREADS)
def test_strict_add_rms_norm(spread: float) -> None:
    """Check both results."""
    random = np.random.default_rng(0)
    x, residual = (
        ((0.5 + random.normal(size=(8, 45))) * spread).astype(np.float32) for _ in range(2)
    )
    weight = random.normal(size=45).astype(np.float32)
    y, total = add_rms_norm(x, residual, weight, 1e-6)
    tv.bound("add_rms_norm", x, weight, eps=1e-6, residual=residual).assert_close(y=y, sum=total)


@pytest.mark.parametrize("spread", SPREADS)
def test_strict_layer_norm(spread: float) -> None:
    """Check forward, also where the mean is large."""
    random = np.random.default_rng(0)
    weight, bias = (random.normal(size=45).astype(np.float32) for _ in range(2))
    for offset in (0.5, 100.0):
        x = ((offset + random.normal(size=(8, 45))) * spread).astype(np.float32)
        bound = tv.bound("layer_norm", x, weight, bias, eps=1e-5, grade="conditional")
        bound.assert_close(y=layer_norm(x, weight, bias, 1e-5)[0])
