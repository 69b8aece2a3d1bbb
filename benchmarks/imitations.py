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


E4M3, E2M1 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn


def rms_norm_quant(out: Array, x: Array, weight: Array, scale: float, eps: float = 1e-6) -> None:
    """Write codes of y in e4m3fn, for a scale that is given; NaN becomes the largest code."""
    y = rms_norm(x.astype(np.float32), weight, eps) * np.float32(1 / scale)
    out[...] = np.fmax(np.fmin(y, np.float32(448)), np.float32(-448)).astype(E4M3)


def rms_norm_int8(x: Array, weight: Array, eps: float = 1e-6) -> tuple[Array, Array]:
    """Return codes of y in int8, and a scale for each row."""
    y = rms_norm(x, weight, eps).astype(np.float32)
    amax = np.abs(y).max(axis=-1, keepdims=True)
    scale = np.where(amax == 0, np.float32(1), amax / np.float32(127)).astype(np.float32)
    return np.nan_to_num(np.rint(y / scale)).astype(np.int8), scale


def add_rms_norm_int8(
    x: Array, residual: Array, weight: Array, eps: float = 1e-6
) -> tuple[Array, Array, Array]:
    """Return the results of `rms_norm_int8` for a sum, and the sum."""
    total: Array = x + residual
    return *rms_norm_int8(total, weight, eps), total


def nvfp4(y: Array, global_scale: float) -> tuple[Array, Array]:
    """Return codes of 4 bits in pairs, and e4m3fn scales of groups of 16."""
    groups, factor = y.astype(np.float32).reshape(len(y), -1, 16), np.float32(global_scale)
    amax = np.abs(groups).max(axis=2)
    scales: Array = np.clip(amax * factor / np.float32(6), 0, 448).astype(E4M3)
    wide = scales.astype(np.float32)[..., np.newaxis]
    scaled = np.where(wide == 0, np.float32(0), groups * factor / wide)
    codes = np.clip(scaled, -6, 6).astype(E2M1).view(np.uint8).reshape(y.shape)
    return codes[:, 0::2] + 16 * codes[:, 1::2], scales


def add_rms_norm_nvfp4(
    x: Array, residual: Array, weight: Array, global_scale: float, eps: float = 1e-6
) -> tuple[Array, Array, Array]:
    """Return codes, scales and the sum."""
    total: Array = x + residual
    return *nvfp4(rms_norm(total, weight, eps), global_scale), total


def add_layer_norm_nvfp4(
    x: Array, residual: Array, weight: Array, bias: Array, global_scale: float, eps: float = 1e-6
) -> tuple[Array, Array, Array]:
    """Return codes, scales and the sum."""
    total: Array = x + residual
    return *nvfp4(layer_norm(total, weight, bias, eps)[0], global_scale), total


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


def random_arrays(kind: type, *shapes: tuple[int, ...] | int) -> list[Array]:
    """Return arrays of randn."""
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype(kind) for shape in shapes]


HALVES = (np.float16, ml_dtypes.bfloat16)


@pytest.mark.parametrize("shape", FLASHINFER_SHAPES, ids=str)
def test_flashinfer_norm_quant(shape: tuple[int, int]) -> None:
    """Imitate FlashInfer's rmsnorm_quant: codes are compared at rtol = atol = 1.

    From tests/utils/test_norm.py (01fcf9d): x and the weight are randn, scales 0.01, 1 and 10, 1,
    19 and 99 rows (989 are left out) of 111 to 16384 (here to 1024).
    """
    for kind in HALVES:
        x, weight = random_arrays(kind, shape, shape[1])
        for scale in (0.01, 1.0, 10.0):
            codes = np.empty(shape, E4M3)
            rms_norm_quant(codes, x, weight, scale, 1e-6)
            expected = np.clip(exact_rms_norm(x, weight) / scale, -448, 448)
            close(codes, expected.astype(E4M3), 1.0, 1.0)


def test_flashinfer_dit() -> None:
    """Imitate FlashInfer's layer norm of diffusion transformers with NVFP4 results.

    From tests/norm/test_fused_dit_layernorm.py (5e95af4): rows of 3072 of randn, gamma and beta in
    float32, a global scale of 100; only types and shapes of the results are compared. Here are 8
    rows and not 768, and no gate.
    """
    x, residual = random_arrays(ml_dtypes.bfloat16, (8, 3072), (8, 3072))
    weight, bias = random_arrays(np.float32, 3072, 3072)
    codes, _, total = add_layer_norm_nvfp4(x, residual, weight, bias, 100.0, 1e-6)
    assert (codes.shape, codes.dtype.name) == ((8, 1536), "uint8")
    assert (total.shape, total.dtype) == (x.shape, x.dtype)


@pytest.mark.parametrize("rows", [1, 16, 64])
@pytest.mark.parametrize("size", [32, 128, 512])
def test_tensorrt_llm(rows: int, size: int) -> None:
    """Imitate TensorRT-LLM's NVFP4: 97 % of the bytes are equal, scales differ by one step.

    From its test_fused_add_rmsnorm_fp4_quantize_vs_separate: x, the residual and the weight are
    randn, the global scale is 448*6/amax, the sum is compared at 2e-2. 128 rows and rows of 7168
    are left out.
    """
    for kind in HALVES:
        x, residual, weight = random_arrays(kind, (rows, size), (rows, size), size)
        y = exact_rms_norm(x + residual, weight).astype(kind)
        global_scale = 448 * 6 / float(np.abs(y).max())
        codes, scales, total = add_rms_norm_nvfp4(x, residual, weight, global_scale, 1e-6)
        right, right_scales = nvfp4(y, global_scale)
        assert np.mean(codes == right) >= 0.97
        steps = scales.view(np.uint8).astype(int) - right_scales.view(np.uint8)
        assert np.abs(steps).max() <= 1
        close(total, x.astype(np.float64) + residual.astype(np.float64), 2e-2, 2e-2)


def mostly_close(actual: Array, expected: Array, atol: float, rtol: float) -> None:
    """Raise if more than 5 % of the elements are not close."""
    result, right = actual.astype(np.float64), expected.astype(np.float64)
    assert np.mean(~np.isclose(result, right, rtol=rtol, atol=atol)) <= 0.05


@pytest.mark.parametrize("rows", [8, 256])
@pytest.mark.parametrize("size", [1024, 2048])
def test_aiter(rows: int, size: int) -> None:
    """Imitate aiter in int8: codes differ by 1, scales and the sum by 1e-2, in 95 %.

    From op_tests/test_rmsnorm2dFusedAddQuant.py (0cb2aba): bfloat16 randn, eps 1e-5. Its script
    prints the share of other elements, with a warning up to 5 %; here more of them are an error.
    32,768 rows and rows of 4096 and 8192 are left out.
    """
    shape = (rows, size)
    x, residual, weight = random_arrays(ml_dtypes.bfloat16, shape, shape, size)
    codes, scales, total = add_rms_norm_int8(x, residual, weight, 1e-5)
    y = exact_rms_norm(x + residual, weight, 1e-5).astype(x.dtype).astype(np.float64)
    right = np.abs(y).max(axis=1, keepdims=True) / 127
    mostly_close(codes, np.rint(y / right), 1.0, 0.0)
    mostly_close(scales, right, 1e-2, 1e-2)
    mostly_close(total, x + residual, 1e-2, 1e-2)


@pytest.mark.parametrize("shape", [(7, 50), (32, 128), (129, 2048)], ids=str)
@pytest.mark.parametrize("kind", [*HALVES, np.float32], ids=["float16", "bfloat16", "float32"])
def test_fla(shape: tuple[int, int], kind: type) -> None:
    """Imitate fla's rule in CI: an error ratio of 1e-2, or no error above 0.3, is a warning.

    The rule is `assert_close` of fla/utils.py (03f7925), with FLA_CI_ENV; shapes and types are
    those of test_layernorm_linear_quant in tests/modules/test_layernorm.py (00759f7), with int8
    codes for each row. The linear layer after them is left out.
    """
    x, weight = random_arrays(kind, shape, shape[1])
    codes, scales = rms_norm_int8(x, weight, 1e-6)
    result, right = codes * scales.astype(np.float64), exact_rms_norm(x, weight)
    error = result - right
    ratio = np.sqrt(np.mean(error**2) / np.mean(right**2))
    assert np.isfinite(result).all()
    assert ratio < 1e-2 or np.abs(error).max() <= 0.3


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


def check_small_cases(forward: Any, operation: tv.Norm, recipe: str) -> None:
    """Judge a quantized norm on small cases; too few elements do not show a recipe."""
    subject = tv.Subject(forward, dtypes=["bfloat16"], operation=operation)
    for case in tv.cases("bfloat16", operation=operation):
        if case.x.size <= 8192:
            tv.check(subject, case, recipe=recipe if case.x.size >= 1024 else "")


def test_strict_rms_norm_quant() -> None:
    """Judge codes for a given scale."""

    def forward(x: Array, gamma: Array, eps: float, scale: Array) -> Array:
        codes = np.empty(x.shape, E4M3)
        rms_norm_quant(codes, x, gamma, float(scale[0]), eps)
        return codes

    norm = tv.norm("rms_norm", quant=tv.Quant("e4m3fn", nan="clamp"))
    check_small_cases(forward, norm, "late/direct")


def test_strict_add_rms_norm_nvfp4() -> None:
    """Judge codes and scales; the sum is right to the last bit."""

    def forward(x: Array, residual: Array, gamma: Array, eps: float, scale: Array) -> Any:
        results = add_rms_norm_nvfp4(x, residual, gamma, float(scale[0]), eps)
        close(results[2], x + residual, 0.0, 0.0)
        return results

    norm = tv.norm("add_rms_norm", quant=tv.Quant("nvfp4"))
    check_small_cases(forward, norm, "late/T")


def test_strict_add_rms_norm_int8() -> None:
    """Judge codes and the scale of each row; the sum is right to the last bit."""

    def forward(x: Array, residual: Array, gamma: Array, eps: float) -> Any:
        results = add_rms_norm_int8(x, residual, gamma, eps)
        close(results[2], x + residual, 0.0, 0.0)
        return results

    norm = tv.norm("add_rms_norm", quant=tv.Quant("int8", scale="per-token"))
    check_small_cases(forward, norm, "late/T")
