"""The same bits for every layout, rank and choice of axes, and inputs that never change."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from ops.drawn import any_inputs
from ops.judged import (
    DTYPES,
    LAYOUTS,
    NARROW,
    OUTPUTS,
    Array,
    Inputs,
    assert_same_bits,
    both_passes,
    expected,
    normal_inputs,
    read_only,
)
from promise.oracle import bits

AXES: list[int | tuple[int, ...]] = [-1, 0, 1, (0, 2), (2, 0), (-1, -2), (0, 1, 2)]


GATE = settings().derandomize


# The judge takes its time: half as many as of other tests in the gate, elsewhere twice as many.
@given(inputs=any_inputs())
@settings(max_examples=settings().max_examples // 2 if GATE else 2 * settings().max_examples)
def test_any_inputs(backend: str, inputs: Inputs) -> None:
    before = [array.tobytes() for array in inputs.arrays]
    with np.errstate(all="raise"):
        results = both_passes(inputs, backend)
    assert_same_bits(results, expected(inputs))
    assert [array.tobytes() for array in inputs.arrays] == before
    for result in results:
        assert result is None or not any(np.shares_memory(result, a) for a in inputs.arrays)


@given(inputs=any_inputs())
@settings(max_examples=settings().max_examples // 2)
def test_any_inputs_in_fast_mode(backend: str, inputs: Inputs) -> None:
    """Its bounds are tested elsewhere; here, that NaN comes where it should, as it should."""
    before = [array.tobytes() for array in inputs.arrays]
    with np.errstate(all="raise"):
        results = both_passes(inputs, backend, "fast")
    for name, result, right in zip(OUTPUTS, results, expected(inputs), strict=True):
        if result is None or right is None:
            assert result is right, name
            continue
        assert (result.shape, result.dtype) == (right.shape, right.dtype), name
        nan = np.isnan(right.astype(np.float64))
        assert (np.isnan(result.astype(np.float64)) == nan).all(), (name, result, right)
        assert (bits(result)[nan] == bits(right)[nan]).all(), name
    assert [array.tobytes() for array in inputs.arrays] == before


def relaid(inputs: Inputs, layout: str) -> Inputs:
    laid_out = (None if array is None else LAYOUTS[layout](array) for array in inputs[:4])
    x, gamma, beta, dy = laid_out
    assert x is not None
    assert dy is not None
    return Inputs(x, gamma, beta, dy, inputs.axis, inputs.eps)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
class TestLayouts:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_every_layout(
        self, backend: str, dtype: np.dtype[Any], axis: int | tuple[int, ...], layout: str
    ) -> None:
        inputs = normal_inputs((3, 4, 5), dtype, axis, offset=3.0)
        assert_same_bits(both_passes(relaid(inputs, layout), backend), expected(inputs))

    def test_zero_strides(
        self, backend: str, dtype: np.dtype[Any], axis: int | tuple[int, ...]
    ) -> None:
        inputs = normal_inputs((3, 4, 5), dtype, axis)
        for k in range(3):
            x, dy = (
                np.broadcast_to(array.take([1], axis=k), array.shape)
                for array in (inputs.x, inputs.dy)
            )
            assert 0 in x.strides
            assert inputs.gamma is not None
            gamma = np.broadcast_to(inputs.gamma.ravel()[:1], inputs.gamma.shape)
            beta = np.broadcast_to(inputs.gamma.ravel()[1:2], inputs.gamma.shape)
            repeated = Inputs(x, gamma, beta, dy, axis)
            assert_same_bits(both_passes(repeated, backend), expected(repeated))

    def test_memory_mapped(
        self, backend: str, dtype: np.dtype[Any], axis: int | tuple[int, ...], tmp_path: Path
    ) -> None:
        inputs = normal_inputs((3, 4, 5), dtype, axis)
        mapped: list[Array] = []
        for place, array in enumerate(inputs.arrays):
            file = tmp_path / f"{place}.bin"
            file.write_bytes(array.tobytes())
            mapped.append(np.memmap(file, dtype, "r", shape=array.shape))
        x, gamma, beta, dy = mapped
        results = both_passes(Inputs(x, gamma, beta, dy, axis), backend)
        assert_same_bits(results, expected(inputs))
        assert all(type(result) is np.ndarray for result in results)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(7,), (2, 7), (2, 2, 7), (2, 1, 2, 7), (1, 2, 1, 2, 7)])
def test_every_rank(backend: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    for axis in (-1, 0, tuple(range(len(shape))), (0, len(shape) - 1)[: len(shape)]):
        inputs = normal_inputs(shape, dtype, axis)
        assert_same_bits(both_passes(inputs, backend), expected(inputs))


@pytest.mark.parametrize("axis", [(1, 2), (2, 1), (-1, -2), [-2, 2]], ids=str)
def test_gamma_has_the_axis_order_of_x(backend: str, axis: Any) -> None:
    """Whatever order the axes are named in: the first axis of gamma is the first one in x."""
    inputs = normal_inputs((2, 3, 4), np.float32, (1, 2))
    renamed = inputs._replace(axis=axis)
    assert_same_bits(both_passes(renamed, backend), expected(inputs))


@pytest.mark.parametrize("beta_type", [None, *DTYPES], ids=str)
@pytest.mark.parametrize("gamma_type", [None, *DTYPES], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_mixed_types(
    backend: str,
    dtype: np.dtype[Any],
    gamma_type: np.dtype[Any] | None,
    beta_type: np.dtype[Any] | None,
) -> None:
    """And each gradient has the type of its parameter: the comparison includes it."""
    inputs = normal_inputs((5, 7), dtype)
    gamma, beta = normal_inputs((5, 7), np.float64)[1:3]
    assert gamma is not None
    assert beta is not None
    mixed = inputs._replace(
        gamma=None if gamma_type is None else gamma.astype(gamma_type),
        beta=None if beta_type is None else beta.astype(beta_type),
    )
    assert_same_bits(both_passes(mixed, backend), expected(mixed))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_layouts_in_fast_mode(backend: str, dtype: np.dtype[Any], layout: str) -> None:
    """Within the bound of the promise for y, K = 8 and u = 2**-24, beside one ulp."""
    inputs = normal_inputs((3, 4, 67), dtype, (0, 2), offset=3.0)
    y = both_passes(relaid(inputs, layout), backend, "fast")[0].astype(np.float64)
    right = expected(inputs)[0]
    assert right is not None
    assert inputs.gamma is not None
    x = inputs.x.astype(np.float64)
    centred = x - x.mean(axis=(0, 2), keepdims=True)
    xhat = np.abs(centred) / np.sqrt(centred.var(axis=(0, 2), keepdims=True) + inputs.eps)
    gamma = np.abs(inputs.gamma.astype(np.float64))[:, np.newaxis, :]
    ulp = np.abs(right.astype(np.float64)) * {"float16": 2**-10, "bfloat16": 2**-7}.get(
        dtype.name, 2**-23
    )
    # `right` is rounded: half an ulp more; and xhat here has an error of its own, hence 1.01.
    bound = 1.5 * ulp + 1.01 * 8 * 2.0**-24 * gamma * (xhat + 1)
    assert (np.abs(y - right.astype(np.float64)) <= bound).all()


def test_rows_of_many_blocks(backend: str) -> None:
    """Rows gathered block by block from an array that is not contiguous."""
    inputs = normal_inputs((40, 6, 70), np.float32)
    x = np.asfortranarray(np.broadcast_to(inputs.x[:, None], (40, 30, 6, 70)))
    together = both_passes(Inputs(x, inputs.gamma, inputs.beta, x), backend)
    alone = both_passes(Inputs(inputs.x, inputs.gamma, inputs.beta, inputs.x), backend)
    for k in range(30):
        assert_same_bits(
            (together[0][:, k], together[1][:, k]), (read_only(alone[0]), read_only(alone[1]))
        )
