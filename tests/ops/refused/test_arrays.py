"""Arrays that are passed in: which are taken, and what is said of the others."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from ops.judged import BFLOAT16, assert_same_bits
from ops.refusals import ROW, Forward, X, assert_refused_everywhere, says

WRONG_TYPES: dict[str, tuple[Any, str]] = {
    "int": (np.ones((2, 3), np.int64), "int64"),
    "bool": (np.ones((2, 3), bool), "bool"),
    "complex": (np.ones((2, 3), np.complex64), "complex64"),
    "object": (np.ones((2, 3), object), "object"),
    "text": (np.array([["a", "b", "c"]] * 2), "<U1"),
    "longdouble": (np.ones((2, 3), np.longdouble), str(np.dtype(np.longdouble))),
    "list of int": ([[1, 2, 3], [4, 5, 6]], "int64"),
}
FOUR = "float16, bfloat16, float32 or float64"


class TestTypes:
    @pytest.mark.parametrize("kind", WRONG_TYPES)
    def test_wrong_ones_by_name(self, forward: Forward, kind: str) -> None:
        value, dtype = WRONG_TYPES[kind]
        if dtype == "float64":
            pytest.skip("longdouble is float64 here")
        words = f"is of type {dtype}: pass {FOUR}, for instance {{name}}.astype"
        assert_refused_everywhere(forward, value, value[0], words)

    def test_none(self, forward: Forward) -> None:
        assert_refused_everywhere(forward, None, None, f"is None: pass an array of {FOUR}")

    def test_masked_arrays(self, forward: Forward) -> None:
        masked = np.ma.masked_invalid(X)
        words = (
            "is a masked array, and what a masked element means to a mean is not defined: pass "
            "{name}.filled(...) or {name}.data"
        )
        assert_refused_everywhere(forward, masked, masked[0], words)

    def test_masked_arrays_while_another_thread_imports_them(
        self, forward: Forward, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The module is there before its contents; Numba imports it in the first call."""
        monkeypatch.setitem(sys.modules, "numpy.ma", ModuleType("numpy.ma"))
        forward(X, backend="reference")

    def test_lists_of_floats_are_float64(self, forward: Forward) -> None:
        result = forward([[1.0, 2.0, 4.0]], [1.0, 2.0, 3.0], [0.0, 0.0, 1.0])
        y = result if isinstance(result, np.ndarray) else result[0]
        right = tn.layer_norm(
            np.array([[1.0, 2, 4]]), np.array([1.0, 2, 3]), np.array([0.0, 0, 1])
        )
        assert_same_bits((y,), (right,))


class InOtherHands:
    """An array of another library, as far as DLPack tells."""

    def __init__(self, array: Any, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        if self.device != 1:
            raise AssertionError("asked for memory of another device")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class TestDLPack:
    def test_on_the_cpu(self, backend: str) -> None:
        x, row = X.copy(), ROW.copy()
        y, saved = tn.layer_norm_forward(
            InOtherHands(x), InOtherHands(row), InOtherHands(row), backend=backend
        )
        gradients = tn.layer_norm_backward(InOtherHands(x), saved, backend=backend)
        plain, plain_saved = tn.layer_norm_forward(X, ROW, ROW, backend=backend)
        right = (plain, *tn.layer_norm_backward(X, plain_saved, backend=backend))
        assert_same_bits((y, *gradients), right)
        assert np.shares_memory(saved.x, x)

    def test_on_another_device(self, forward: Forward) -> None:
        elsewhere = InOtherHands(X, device=10)
        words = "is on another device (DLPack type 10): move it to the CPU"
        assert_refused_everywhere(forward, elsewhere, elsewhere, words)

    def test_on_a_card_without_what_that_needs(
        self, forward: Forward, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "cuda", None)
        with pytest.raises(TypeError, match=r"x is on a card of NVIDIA.+truenorm\[cuda\]"):
            forward(InOtherHands(X, device=2))

    def test_of_a_type_that_numpy_does_not_take(self, forward: Forward) -> None:
        words = r"x is a InOtherHands of type unknown, which NumPy cannot take .+: pass a NumPy"
        with pytest.raises(TypeError, match=words):
            forward(InOtherHands(X.astype(BFLOAT16)))


class TorchTensor:
    """What PyTorch 2.13 does when it is asked for its memory; it need not be installed."""

    def __init__(
        self,
        dtype: str,
        *,
        device: str = "cpu",
        requires_grad: bool = False,
        negative: bool = False,
        conjugate: bool = False,
    ) -> None:
        self.dtype, self.device, self.requires_grad = f"torch.{dtype}", device, requires_grad
        self.negative, self.conjugate = negative, conjugate

    def is_neg(self) -> bool:
        return self.negative

    def is_conj(self) -> bool:
        return self.conjugate

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.device == "meta":
            raise ValueError("Unknown device type meta for Dlpack")
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if self.conjugate:
            raise BufferError("Can't export tensors with the conjugate bit set")
        if self.dtype == "torch.bfloat16":
            raise RuntimeError("Unsupported dtype in DLTensor.")  # from within NumPy
        return X.copy().__dlpack__(**options)


class TestTensors:
    def test_one_that_is_right(self, forward: Forward) -> None:
        forward(TorchTensor("float32"))

    def test_meta(self, forward: Forward) -> None:
        words = (
            "is on a device that DLPack does not know (Unknown device type meta for Dlpack): pass "
            "an array whose numbers are in the memory of the CPU"
        )
        meta = TorchTensor("float32", device="meta")
        assert_refused_everywhere(forward, meta, meta, words)

    def test_the_negative_bit(self, forward: Forward) -> None:
        """DLPack exports the memory without the bit: every sign would be wrong."""
        tensor = TorchTensor("float32", negative=True)
        words = (
            "must be a tensor without the negative bit (PyTorch's lazy negation), got a "
            "TorchTensor with it: pass {name}.resolve_neg()"
        )
        assert_refused_everywhere(forward, tensor, tensor, words)

    def test_the_negative_bit_where_a_gradient_is_required(self, forward: Forward) -> None:
        tensor = TorchTensor("float32", negative=True, requires_grad=True)
        with pytest.raises(TypeError, match=says("pass x.detach().resolve_neg()")):
            forward(tensor)

    def test_the_conjugate_bit(self, forward: Forward) -> None:
        """Only complex tensors have it."""
        tensor = TorchTensor("complex64", conjugate=True)
        words = "is a TorchTensor of type torch.complex64, which NumPy cannot take"
        assert_refused_everywhere(forward, tensor, tensor, words)

    def test_out(self) -> None:
        for negative in (False, True):
            tensor: Any = TorchTensor("float32", negative=negative)
            with pytest.raises(TypeError, match="out is a TorchTensor: pass a NumPy array"):
                tn.layer_norm(X, out=tensor)

    @pytest.mark.parametrize(
        ("tensor", "type_name", "way_out"),
        [
            (
                TorchTensor("bfloat16"),
                "bfloat16",
                "pass x.view(torch.uint16).numpy().view(ml_dtypes.bfloat16), or x.float().numpy()",
            ),
            (
                TorchTensor("bfloat16", requires_grad=True),
                "bfloat16",
                "pass x.detach().view(torch.uint16).numpy().view(ml_dtypes.bfloat16), or "
                "x.detach().float().numpy(), which is float32",
            ),
            (TorchTensor("float32", requires_grad=True), "float32", "pass x.detach(), truenorm"),
        ],
        ids=["bfloat16", "bfloat16 that requires grad", "requires grad"],
    )
    def test_what_to_pass_instead(
        self, forward: Forward, tensor: TorchTensor, type_name: str, way_out: str
    ) -> None:
        came = f"x is a TorchTensor of type torch.{type_name}, which NumPy cannot take through"
        with pytest.raises(TypeError, match=f"^{says(came)}.*{says('): ' + way_out)}"):
            forward(tensor)
        with pytest.raises(TypeError, match=says(way_out.replace("x.", "gamma."))):
            forward(X, tensor)
