"""Few long rows, which threads share: the bits of the reference, for any number of threads."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import truenorm as tn
from shared.promise.checking import BACKENDS, on_each_set

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

from truenorm.kernels.native import _core

TYPES = [np.dtype(name) for name in ("float32", "float16", ml_dtypes.bfloat16)]
SEGMENT = 2**15
SHAPES = [(1, SEGMENT + 1), (3, 2 * SEGMENT + 77), (9, SEGMENT + 512)]


def arrays(shape: tuple[int, int], dtype: np.dtype[Any], seed: int = 0) -> list[Any]:
    """Return x, dy, gamma and beta, with a constant row of x and one of dy if there are three."""
    random = np.random.default_rng(seed)
    x, dy = (random.standard_normal(shape) for _ in range(2))
    x = 3 * x + 5
    if shape[0] > 2:
        x[1], dy[2] = 2, 1.5
    gamma, beta = (random.standard_normal(shape[1]) for _ in range(2))
    return [each.astype(dtype) for each in (x, dy, gamma, beta)]


def both_passes(inputs: list[Any], **options: Any) -> list[Any]:
    """Return y, the saved statistics, dx, dgamma and dbeta."""
    x, dy, gamma, beta = inputs
    y, saved = tn.layer_norm_forward(x, gamma, beta, **options)
    return [y, saved.statistics, *tn.layer_norm_backward(dy, saved)]


def bits(results: list[Any]) -> list[bytes]:
    return [each.tobytes() for each in results]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_bits_of_the_reference(dtype: np.dtype[Any]) -> None:
    for shape in SHAPES:
        inputs = arrays(shape, dtype)
        expected, _, *expected_gradients = both_passes(inputs, backend="reference")
        for y, _, *gradients in on_each_set(
            "native", both_passes, inputs, backend="native"
        ).values():
            assert bits([y, *gradients]) == bits([expected, *expected_gradients])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rms_norm(dtype: np.dtype[Any]) -> None:
    x, dy, gamma, _ = arrays((3, SEGMENT + 1000), dtype)
    results = []
    for backend in ("native", "reference"):
        y, saved = tn.rms_norm_forward(x, gamma, backend=backend)
        results.append(bits([y, *tn.rms_norm_backward(dy, saved)[:2]]))
    assert results[0] == results[1]


@pytest.mark.parametrize("rounding", ["correct", "fast"])
@pytest.mark.parametrize("shape", SHAPES)
def test_threads_and_other_rows_do_not_matter(shape: tuple[int, int], rounding: str) -> None:
    inputs = arrays(shape, TYPES[0])
    alone = both_passes(inputs, backend="native", rounding=rounding, threads=1)
    for threads in (2, 3, 8):
        shared = both_passes(inputs, backend="native", rounding=rounding, threads=threads)
        assert bits(shared) == bits(alone)
    # Among 70 rows threads share none.
    x, _, gamma, beta = inputs
    many = np.concatenate([x, *[x[:1]] * 70])
    y, saved = tn.layer_norm_forward(many, gamma, beta, backend="native", rounding=rounding)
    assert bits([y[: len(x)], saved.statistics[: len(x)]]) == bits(alone[:2])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_tier2(dtype: np.dtype[Any]) -> None:
    """With bounds 2**18 times as large, tier 1 leaves many elements and columns undecided."""
    inputs = arrays((9, SEGMENT + 512), dtype)
    expected = both_passes(inputs, backend="native")
    _core.scale_bounds(2.0**18)
    try:
        results = both_passes(inputs, backend="native")
    finally:
        _core.scale_bounds(1.0)
    assert bits(results) == bits(expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("index", range(4), ids=["x", "dy", "gamma", "beta"])
def test_non_finite_values(index: int, value: float) -> None:
    inputs = arrays((2, SEGMENT + 3), TYPES[0])
    inputs[index].reshape(-1)[SEGMENT + 1] = value
    y, _, *gradients = both_passes(inputs, backend="native")
    expected, _, *expected_gradients = both_passes(inputs, backend="reference")
    assert bits([y, *gradients]) == bits([expected, *expected_gradients])


def test_dbeta_of_many_magnitudes() -> None:
    """The pairs of dbeta are exact for single rows, not for groups of eight."""
    inputs = arrays((9, SEGMENT + 5), TYPES[0])
    inputs[1][::2] *= np.float32(2.0**40)
    inputs[1][1::2] *= np.float32(2.0**-40)
    dbeta = both_passes(inputs, backend="native")[-1]
    expected = both_passes(inputs, backend="reference")[-1]
    assert bits([dbeta]) == bits([expected])
