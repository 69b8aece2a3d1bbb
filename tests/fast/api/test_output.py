"""Output arrays: `out`, overlap with inputs, signatures and memory."""

import inspect
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import truenorm as tn
from shared.api.helpers import (
    LAYOUTS,
    Array,
    Forward,
    X,
    assert_same_bits,
    exact_match,
    native,
    normal_inputs,
    swapped,
)
from shared.api.tensors import DLPackArray, TorchTensor, tensor_of
from truenorm.api import arguments


class TestOut:
    @pytest.mark.parametrize("layout", sorted(set(LAYOUTS) - {"read-only"}))
    def test_of_any_layout(
        self, backend: str, rounding: str, dtype: np.dtype[Any], layout: str
    ) -> None:
        inputs = normal_inputs((3, 4, 5), dtype, (0, 2))
        options: dict[str, Any] = {"axis": (0, 2), "rounding": rounding, "backend": backend}
        right, saved = tn.layer_norm_forward(*inputs[:3], **options)
        gradients = tn.layer_norm_backward(inputs.dy, saved, backend=backend)

        def empty() -> Array:
            return LAYOUTS[layout](np.full(inputs.x.shape, 9, dtype))

        out = empty()
        assert tn.layer_norm(*inputs[:3], out=out, **options) is out
        assert_same_bits((native(out),), (right,))
        out = empty()
        y, saved = tn.layer_norm_forward(*inputs[:3], out=out, **options)
        assert y is out
        assert_same_bits((native(out),), (right,))
        out = empty()
        dx, *columns = tn.layer_norm_backward(inputs.dy, saved, out=out, backend=backend)
        assert dx is out
        assert_same_bits((None, native(dx), *columns), (None, *gradients))

    def test_only_its_own_elements_are_written(self, backend: str, rounding: str) -> None:
        inputs = normal_inputs((3, 5), np.float32)
        around = np.full((7, 11), 9, np.float32)
        tn.layer_norm(inputs.x, out=around[1::2, 1::2], rounding=rounding, backend=backend)
        around[1::2, 1::2] = 9
        assert (around == 9).all()

    def test_the_result_is_native_without_it(self, backend: str, dtype: np.dtype[Any]) -> None:
        x = swapped(normal_inputs((3, 5), dtype).x)
        y, saved = tn.layer_norm_forward(x, x[0], x[0], backend=backend)
        gradients = tn.layer_norm_backward(x, saved, backend=backend)
        for result in (y, *gradients):
            assert result is not None
            assert result.dtype.isnative

    @pytest.mark.parametrize("axis", [-1, 0, (0, 2)])
    def test_x_itself(self, backend: str, rounding: str, dtype: np.dtype[Any], axis: Any) -> None:
        inputs = normal_inputs((30, 4, 67), dtype, axis)
        options: dict[str, Any] = {"axis": axis, "rounding": rounding, "backend": backend}
        right = tn.layer_norm(*inputs[:3], **options)
        for layout in ("C", "Fortran", "swapped byte order"):
            x = LAYOUTS[layout](inputs.x)
            assert tn.layer_norm(x, *inputs[1:3], out=x, **options) is x
            assert_same_bits((native(x),), (right,))
            x = LAYOUTS[layout](inputs.x)
            tn.layer_norm(x, *inputs[1:3], out=x[:], **options)
            assert_same_bits((native(x),), (right,))

    def test_x_itself_where_rows_are_recomputed(
        self, backend: str, rounding: str, dtype: np.dtype[Any]
    ) -> None:
        """Elements at the mean are undecided in tier 1; float64 recomputes zeros of fast mode."""
        x = np.random.default_rng(0).integers(-3, 4, (200, 67)).astype(dtype)
        right = tn.layer_norm(x, rounding=rounding, backend=backend)
        tn.layer_norm(x, out=x, rounding=rounding, backend=backend)
        assert_same_bits((x,), (right,))

    @pytest.mark.parametrize("shift", [-3, -1, 1, 3])
    def test_overlapping_as_in_ufuncs(
        self, backend: str, rounding: str, dtype: np.dtype[Any], shift: int
    ) -> None:
        """As if x had been copied first, also where the rows are many blocks."""
        whole = np.array(normal_inputs((300, 257), dtype).x)
        rows, columns = slice(3, -3), slice(max(shift, 0), shift or None if shift < 0 else None)
        x = whole[rows, : -abs(shift)]
        out = whole[3 + shift : 297 + shift, columns]
        right = tn.layer_norm(x.copy(), rounding=rounding, backend=backend)
        out = out[:, : x.shape[1]]
        tn.layer_norm(x, out=out, rounding=rounding, backend=backend)
        assert_same_bits((out,), (right,))

    def test_over_parameters(self, forward: Forward, backend: str, rounding: str) -> None:
        """Parameters are read before y is written; backward needs only the type of beta."""
        inputs = normal_inputs((3, 5), np.float32)
        options: dict[str, Any] = {"rounding": rounding, "backend": backend}
        right = tn.layer_norm(*inputs[:3], **options)
        out = np.zeros((3, 5), np.float32)
        out[0], out[1] = inputs.gamma, inputs.beta
        gamma = inputs.gamma if forward is tn.layer_norm_forward else out[0]
        forward(inputs.x, gamma, out[1], out=out, **options)
        assert_same_bits((out,), (right,))


class TestOutErrors:
    x = normal_inputs((2, 3), np.float32).x

    def calls(self, backend: str) -> list[Any]:
        saved = tn.layer_norm_forward(self.x, backend=backend)[1]
        return [
            lambda out: tn.layer_norm(self.x, out=out, backend=backend),
            lambda out: tn.layer_norm_forward(self.x, out=out, backend=backend),
            lambda out: tn.layer_norm_backward(self.x, saved, out=out, backend=backend),
        ]

    def test_shape_and_type(self, backend: str) -> None:
        for call in self.calls(backend):
            for shape, kind in (((3, 2), "float32"), ((1, 2, 3), "float32"), ((2, 3), "float64")):
                words = f"(2, 3) and type float32, got shape {shape} and type {kind}"
                with pytest.raises(ValueError, match=exact_match(f"out must have shape {words}")):
                    call(np.empty(shape, kind))

    def test_read_only(self, backend: str) -> None:
        out = np.empty((2, 3), np.float32)
        out.flags.writeable = False
        for call in self.calls(backend):
            with pytest.raises(ValueError, match="out must be writable, got a read-only array"):
                call(out)

    @pytest.mark.parametrize("out", [[1.0], "abc", 5, (None,)], ids=str)
    def test_not_an_array(self, backend: str, out: Any) -> None:
        for call in self.calls(backend):
            words = f"out must be a NumPy array or a tensor on the CPU, got a {type(out).__name__}"
            with pytest.raises(TypeError, match=words):
                call(out)

    def test_overlap(self, backend: str, rounding: str) -> None:
        words = "out must not overlap {}, which backward needs: pass another array"
        memory = np.arange(12, dtype=np.float32) ** 2
        x = memory[:6].reshape(2, 3)
        before = memory.copy()
        options: dict[str, Any] = {"rounding": rounding, "backend": backend}
        for out in (x, x[::-1], memory[5:11].reshape(2, 3)):
            with pytest.raises(ValueError, match=words.format("x")):
                tn.layer_norm_forward(x, out=out, **options)
        _, saved = tn.layer_norm_forward(x, **options)
        dy = memory[6:].reshape(2, 3)
        across = memory[3:9].reshape(2, 3)
        for name, out in (("x", x), ("dy", dy), ("x", across), ("dy", dy[::-1])):
            with pytest.raises(ValueError, match=words.format(name)):
                tn.layer_norm_backward(dy, saved, out=out, backend=backend)
        assert (memory == before).all()

    def test_overlap_with_gamma(self, backend: str, rounding: str) -> None:
        """Otherwise the next backward with the same state would read dx as gamma."""
        words = "out must not overlap gamma, which backward needs: pass another array"
        options: dict[str, Any] = {"rounding": rounding, "backend": backend}
        memory = np.arange(8, dtype=np.float32) ** 2
        before = memory.copy()
        gamma, out = memory[:3], memory[2:].reshape(2, 3)
        with pytest.raises(ValueError, match=words):
            tn.layer_norm_forward(self.x, gamma, out=out, **options)
        _, saved = tn.layer_norm_forward(self.x, gamma, **options)
        with pytest.raises(ValueError, match=words):
            tn.layer_norm_backward(self.x, saved, out=out, backend=backend)
        assert (memory == before).all()

    @pytest.mark.parametrize("strides", [(0, 4), (12, 0), (0, 0), (4, 4), (8, 4), (-4, 4)])
    def test_overlap_with_itself(self, backend: str, strides: tuple[int, int]) -> None:
        memory = np.arange(12, dtype=np.float32)
        before = memory.copy()
        out = as_strided(memory[4:], (2, 3), strides)
        words = f"elements of out must not overlap, got shape (2, 3) and strides {strides}"
        for call in self.calls(backend):
            with pytest.raises(ValueError, match=exact_match(words)):
                call(out)
        assert (memory == before).all()

    def test_interleaved_is_no_overlap(self, backend: str, rounding: str) -> None:
        memory = np.arange(12, dtype=np.float32).reshape(2, 6) ** 2
        x, out = memory[:, ::2], memory[:, 1::2]
        right = tn.layer_norm(x, rounding=rounding, backend=backend)
        tn.layer_norm_forward(x, out=out, rounding=rounding, backend=backend)
        assert_same_bits((out,), (right,))


@pytest.mark.usefixtures("torch")
@pytest.mark.skipif(
    not np.from_dlpack(np.zeros(1)).flags.writeable,
    reason="NumPy before 2.2 takes every array through DLPack as read-only",
)
class TestTensors:
    """A tensor of PyTorch as `out`: its memory is written, and it is returned."""

    @pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
    def test_every_function(self, backend: str, dtype: np.dtype[Any], *, centred: bool) -> None:
        x, gamma, beta, dy = normal_inputs((3, 5), dtype).arrays
        norm = "layer_norm" if centred else "rms_norm"
        arguments = (x, gamma, beta) if centred else (x, gamma)
        right, saved = getattr(tn, f"{norm}_forward")(*arguments, backend=backend)
        gradients = getattr(tn, f"{norm}_backward")(dy, saved, backend=backend)

        def check(function: str, *arguments: Any, result: Array) -> None:
            out = tensor_of(np.zeros_like(x))
            returned = getattr(tn, function)(*arguments, out=out, backend=backend)
            assert (returned[0] if isinstance(returned, tuple) else returned) is out
            assert_same_bits((out.array,), (result,))

        check(norm, *arguments, result=right)
        check(f"{norm}_forward", *arguments, result=right)
        check(f"{norm}_backward", dy, saved, result=gradients.dx)
        if dtype != np.float64:
            check(f"{norm}_backward_partial", dy, saved, result=gradients.dx)

    def test_x_itself(self, backend: str, dtype: np.dtype[Any]) -> None:
        x = tensor_of(normal_inputs((30, 67), dtype).x)
        right = tn.layer_norm(x.array, backend=backend)
        returned: Any = tn.layer_norm(x, out=x, backend=backend)
        assert returned is x
        assert_same_bits((x.array,), (right,))

    def test_overlap(self, backend: str, dtype: np.dtype[Any]) -> None:
        x = tensor_of(normal_inputs((3, 5), dtype).x)
        before = x.array.tobytes()
        with pytest.raises(ValueError, match="out must not overlap x, which backward needs"):
            tn.layer_norm_forward(x, out=x, backend=backend)
        _, saved = tn.layer_norm_forward(x, backend=backend)
        with pytest.raises(ValueError, match="out must not overlap x, which backward needs"):
            tn.layer_norm_backward(x, saved, out=x, backend=backend)
        assert x.array.tobytes() == before

    def test_other_type(self) -> None:
        x = np.ones((3, 5), np.float32)
        with pytest.raises(ValueError, match=r"float32, got shape \(3, 5\) and type bfloat16"):
            tn.layer_norm(x, out=tensor_of(x.astype("bfloat16")))


class TestTensorErrors:
    @pytest.mark.parametrize(
        ("tensor", "words"),
        [
            (TorchTensor("float32", negative=True), "out must be a tensor without the negative"),
            (TorchTensor("float32", requires_grad=True), "pass out.detach()"),
            (TorchTensor("bfloat16", requires_grad=True), "pass out.detach()"),
            (TorchTensor("float32", device="meta"), "out is on a device that DLPack does not"),
            (DLPackArray(X, device=2), "out is on another device (DLPack type 2): move it"),
        ],
        ids=["negative bit", "gradient", "gradient of bfloat16", "meta", "other device"],
    )
    def test_tensors_that_cannot_be_written(self, tensor: Any, words: str) -> None:
        with pytest.raises(TypeError, match=exact_match(words)):
            tn.layer_norm(X, out=tensor)

    def test_read_only(self) -> None:
        """As those of JAX, and every array in NumPy before 2.2, which asks for no version."""

        class Unversioned(DLPackArray):
            def __dlpack__(self, **_: Any) -> Any:
                return self.array.__dlpack__()

        words = "out must be writable, got a Unversioned that NumPy"
        with pytest.raises(ValueError, match=f"{words}.+ as read-only: pass a NumPy array"):
            tn.layer_norm(X, out=Unversioned(X.copy()))

    def test_masked(self) -> None:
        with pytest.raises(TypeError, match="on the CPU, got a MaskedArray"):
            tn.layer_norm(X, out=np.ma.masked_invalid(X))


class TestDisjointElements:
    """The check of layouts, without computation."""

    @given(st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), max_size=4))
    def test_overlapping_layouts_are_rejected(self, axes: list[tuple[int, int]]) -> None:
        """All places are listed and compared; strides in bytes, for elements of two bytes."""
        lengths, steps = zip(*axes, strict=True) if axes else ((), ())
        memory = np.zeros(400, np.uint8)[200:].view(np.float16)
        array = as_strided(memory, lengths, steps)
        starts = [np.dot(index, steps) if index else 0 for index in np.ndindex(*lengths)]
        taken = {place for start in starts for place in (start, start + 1)}
        if arguments._is_disjoint(array):
            assert len(taken) == 2 * array.size


MEGABYTE = 10**6


def test_identical_signatures() -> None:
    inference = inspect.signature(tn.layer_norm)
    assert inference.parameters == inspect.signature(tn.layer_norm_forward).parameters
    defaults = {name: parameter.default for name, parameter in inference.parameters.items()}
    assert defaults == {
        "x": inspect.Parameter.empty, "gamma": None, "beta": None, "axis": -1, "eps": 1e-5,
        "rounding": "correct", "out": None, "backend": None, "threads": None, "stream": None,
    }  # fmt: skip
    backward = inspect.signature(tn.layer_norm_backward).parameters
    assert list(backward) == ["dy", "saved", "out", "backend", "threads", "stream"]
    for name in ("out", "backend", "threads", "stream"):
        assert backward[name] == inference.parameters[name]


class TestMemory:
    """At (8, 1024, 4096) float32: the result plus at most 8 MB; in the gate, of a quarter."""

    @pytest.fixture(
        scope="class",
        params=[2, pytest.param(8, marks=pytest.mark.slow(reason="128 MB take seconds"))],
    )
    @classmethod
    def arrays(cls, request: pytest.FixtureRequest) -> tuple[Array, Array, Array]:
        random = np.random.default_rng(0)
        x, dy = random.standard_normal((2, request.param, 1024, 4096), dtype=np.float32)
        return x, dy, random.standard_normal(4096, dtype=np.float32)

    def test_peak(self, backend: str, rounding: str, arrays: tuple[Array, Array, Array]) -> None:
        x, dy, row = arrays
        tn.layer_norm(x[0, :2], backend=backend)  # imports of the first call
        tracemalloc.start()
        try:
            y, saved = tn.layer_norm_forward(x, row, row, rounding=rounding, backend=backend)
            assert tracemalloc.get_traced_memory()[1] - y.nbytes <= 8 * MEGABYTE
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            gradients = tn.layer_norm_backward(dy, saved, backend=backend)
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak - gradients.dx.nbytes <= 8 * MEGABYTE
        finally:
            tracemalloc.stop()
