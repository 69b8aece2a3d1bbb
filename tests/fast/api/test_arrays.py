"""Arrays: accepted types, DLPack, and identical bits for every layout, rank and choice of axes."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import truenorm as tn
from shared.api.helpers import (
    BFLOAT16,
    DTYPES,
    LAYOUTS,
    NARROW,
    OUTPUTS,
    ROW,
    Array,
    Forward,
    Inputs,
    X,
    any_inputs,
    assert_same_bits,
    assert_type_error,
    both_passes,
    exact_match,
    expected,
    normal_inputs,
    read_only,
)
from shared.api.tensors import DLPackArray, TorchTensor, tensor_of
from shared.promise.oracle import bits

WRONG_TYPES: dict[str, tuple[Any, str]] = {
    "int": (np.ones((2, 3), np.int64), "int64"),
    "bool": (np.ones((2, 3), bool), "bool"),
    "object": (np.ones((2, 3), object), "object"),
    "text": (np.array([["a", "b", "c"]] * 2), "<U1"),
    "longdouble": (np.ones((2, 3), np.longdouble), str(np.dtype(np.longdouble))),
    "list of int": ([[1, 2, 3], [4, 5, 6]], "int64"),
}
FOUR = "float16, bfloat16, float32 or float64"
REFUSED: dict[str, tuple[Any, str]] = {
    "None": (None, f"must be an array of {FOUR}, got None"),
    # .astype would drop the imaginary part.
    "complex": (
        np.ones((2, 3), np.complex64),
        f"must be of type {FOUR}, got complex64: complex numbers are not supported",
    ),
    "masked": (
        np.ma.masked_invalid(X),
        "must not be a masked array: pass {name}.filled(...) or {name}.data",
    ),
    "on another device": (
        DLPackArray(X, device=10), "is on another device (DLPack type 10): move it to the CPU"
    ),
    "meta": (
        TorchTensor("float32", device="meta"),
        "is on a device that DLPack does not know (Unknown device type meta for Dlpack): pass "
        "an array whose numbers are in the memory of the CPU",
    ),
    # DLPack exports the memory without the bit: every sign would be wrong.
    "with the negative bit": (
        TorchTensor("float32", negative=True),
        "must be a tensor without the negative bit (PyTorch's lazy negation), got a "
        "TorchTensor with it: pass {name}.resolve_neg()",
    ),
    # Only complex tensors have it.
    "with the conjugate bit": (
        TorchTensor("complex64", conjugate=True),
        "is a TorchTensor of type torch.complex64, which NumPy cannot take",
    ),
}  # fmt: skip


class TestTypes:
    @pytest.mark.parametrize("kind", WRONG_TYPES)
    def test_wrong_ones_by_name(self, forward: Forward, kind: str) -> None:
        value, dtype = WRONG_TYPES[kind]
        if dtype == "float64":
            pytest.skip("longdouble is float64 here")
        words = f"must be of type {FOUR}, got {dtype}: pass for instance {{name}}.astype"
        assert_type_error(forward, value, value[0], words)

    @pytest.mark.parametrize("kind", REFUSED)
    def test_refused(self, forward: Forward, kind: str) -> None:
        value, words = REFUSED[kind]
        row = value[0] if isinstance(value, np.ndarray) else value
        assert_type_error(forward, value, row, words)

    def test_masked_arrays_while_another_thread_imports_them(
        self, forward: Forward, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A partially imported module is in sys.modules without its contents."""
        monkeypatch.setitem(sys.modules, "numpy.ma", ModuleType("numpy.ma"))
        forward(X, backend="reference")

    def test_lists_of_floats_are_float64(self, forward: Forward) -> None:
        result = forward([[1.0, 2.0, 4.0]], [1.0, 2.0, 3.0], [0.0, 0.0, 1.0])
        y = result if isinstance(result, np.ndarray) else result[0]
        right = tn.layer_norm(
            np.array([[1.0, 2, 4]]), np.array([1.0, 2, 3]), np.array([0.0, 0, 1])
        )
        assert_same_bits((y,), (right,))


class TestDLPack:
    def test_on_the_cpu(self, backend: str) -> None:
        x, row = X.copy(), ROW.copy()
        y, saved = tn.layer_norm_forward(
            DLPackArray(x), DLPackArray(row), DLPackArray(row), backend=backend
        )
        gradients = tn.layer_norm_backward(DLPackArray(x), saved, backend=backend)
        plain, plain_saved = tn.layer_norm_forward(X, ROW, ROW, backend=backend)
        right = (plain, *tn.layer_norm_backward(X, plain_saved, backend=backend))
        assert_same_bits((y, *gradients), right)
        assert np.shares_memory(saved.x, x)

    def test_on_a_cuda_device_without_cuda_core(
        self, forward: Forward, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "cuda", None)
        with pytest.raises(TypeError, match=r"x is on a CUDA device.+truenorm\[cuda\]"):
            forward(DLPackArray(X, device=2))

    def test_type_that_numpy_does_not_take(self, forward: Forward) -> None:
        words = r"x is a DLPackArray of type unknown, which NumPy cannot take .+: pass a NumPy"
        with pytest.raises(TypeError, match=words):
            forward(DLPackArray(X.astype(BFLOAT16)))


class TestTensors:
    def test_the_negative_bit_where_a_gradient_is_required(self, forward: Forward) -> None:
        forward(TorchTensor("float32"))
        tensor = TorchTensor("float32", negative=True, requires_grad=True)
        with pytest.raises(TypeError, match=exact_match("pass x.detach().resolve_neg()")):
            forward(tensor)

    @pytest.mark.usefixtures("torch")
    def test_every_type(self, backend: str, dtype: np.dtype[Any]) -> None:
        inputs = normal_inputs((3, 5), dtype)
        tensors = Inputs(*map(tensor_of, inputs.arrays))
        assert_same_bits(both_passes(tensors, backend), both_passes(inputs, backend))

    def test_bfloat16_of_jax(self, backend: str) -> None:
        """NumPy takes it by its own protocol, since its type is that of ml_dtypes."""

        class JaxArray(DLPackArray):
            dtype = BFLOAT16

            def __array__(self, *_: Any, **__: Any) -> Array:
                array: Array = self.array
                return array

        inputs = normal_inputs((3, 5), BFLOAT16)
        arrays = Inputs(*map(JaxArray, inputs.arrays))  # type: ignore[arg-type]
        assert_same_bits(both_passes(arrays, backend), both_passes(inputs, backend))

    @pytest.mark.usefixtures("torch")
    def test_bfloat16_without_ml_dtypes(
        self, forward: Forward, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        tensor = tensor_of(X.astype(BFLOAT16))
        hint = "pip install ml_dtypes, or pass x.float(), which is float32"
        with pytest.raises(TypeError, match=f"of type torch.bfloat16.+: {exact_match(hint)}"):
            forward(tensor)

    @pytest.mark.usefixtures("torch")
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_required_gradient(self, forward: Forward, dtype: str) -> None:
        array = X.astype(dtype)
        words = (
            f"is a TorchTensor of type torch.{dtype}, which NumPy cannot take through DLPack "
            "(Can't export tensors that require gradient, use tensor.detach()): pass "
            "{name}.detach(), truenorm records no operations to differentiate"
        )
        x, row = (TorchTensor(dtype, each, requires_grad=True) for each in (array, array[0]))
        assert_type_error(forward, x, row, words)


AXES: list[int | tuple[int, ...]] = [-1, 0, 1, (0, 2), (2, 0), (-1, -2), (0, 1, 2)]


GATE = settings().derandomize


# The oracle is slow: half as many examples as other tests in the gate, otherwise twice as many.
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
    """Compare the positions and bits of NaN; promise/test_bounds.py tests the bounds."""
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
    """In any order of axis, the first axis of gamma is the first one in x."""
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
    """Each gradient has the type of its parameter, which the comparison includes."""
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
