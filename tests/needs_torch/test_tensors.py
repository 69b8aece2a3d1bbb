"""Tensors as arguments and results: the negative bit, `out`, and bounds of tensors."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import truenorm as tn
import truenorm.verify as tv
from needs_torch import kernels
from needs_torch.kernels import Tensor
from truenorm.verify.running.pytorch import array_of


def negative(*shape: int, dtype: Any = torch.float32) -> Tensor:
    """Return random numbers in a tensor with the negative bit."""
    made = torch.Generator().manual_seed(0)
    tensor = torch._neg_view(torch.randn(shape, generator=made).to(dtype))
    assert tensor.is_neg()
    return tensor


def test_imaginary_part_of_a_conjugate() -> None:
    """PyTorch negates it on access; by DLPack its memory has the other sign, without an error."""
    imaginary = torch.complex(torch.zeros(3), torch.ones(3)).conj().imag
    assert imaginary.is_neg()
    assert imaginary.tolist() == [-1, -1, -1]
    assert np.from_dlpack(imaginary).tolist() == [1, 1, 1]


CALLS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "x": lambda x, row: tn.layer_norm_forward(x),
    "gamma": lambda x, row: tn.rms_norm(x.resolve_neg(), row),
    "beta": lambda x, row: tn.layer_norm(x.resolve_neg(), None, row),
    "dy": lambda x, row: tn.layer_norm_backward(x, tn.layer_norm_forward(x.resolve_neg())[1]),
    "dy of a partial": lambda x, row: tn.rms_norm_backward_partial(
        x, tn.rms_norm_forward(x.resolve_neg())[1]
    ),
}


@pytest.mark.parametrize("argument", CALLS)
def test_negative_bit(argument: str) -> None:
    name = argument.split()[0]
    message = (
        f"{name} must be a tensor without the negative bit .+, got a Tensor with it: pass {name}."
    )
    with pytest.raises(TypeError, match=message + re.escape("resolve_neg()")):
        CALLS[argument](negative(4, 8), negative(8))


def test_resolved_negative_bit() -> None:
    x = negative(4, 8)
    right = tn.layer_norm(np.array(x.tolist(), np.float32))
    assert tn.layer_norm(x.resolve_neg()).tobytes() == right.tobytes()
    required = x.requires_grad_()
    with pytest.raises(TypeError, match=re.escape("pass x.detach().resolve_neg()")):
        tn.layer_norm(required)
    assert tn.layer_norm(required.detach().resolve_neg()).tobytes() == right.tobytes()


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
class TestOut:
    def test_tensors_only(self, dtype: Any) -> None:
        torch.manual_seed(0)
        x, dy = torch.randn(2, 4, 8).to(dtype)
        gamma, beta = torch.randn(2, 8).to(dtype)
        arrays = [array_of(each) for each in (x, gamma, beta, dy)]
        y, saved = tn.layer_norm_forward(*arrays[:3])
        dx = tn.layer_norm_backward(arrays[3], saved).dx
        out, _ = tn.layer_norm_forward(x, gamma, beta, out=torch.empty(4, 8, dtype=dtype))
        assert array_of(out).tobytes() == y.tobytes()
        out = tn.layer_norm_backward(dy, saved, out=torch.empty(4, 8, dtype=dtype)).dx
        assert array_of(out).tobytes() == dx.tobytes()
        assert tn.layer_norm(x, gamma, beta, out=x) is x
        assert array_of(x).tobytes() == y.tobytes()

    def test_not_contiguous(self, dtype: Any) -> None:
        """Only the elements of the view are written."""
        x = torch.arange(32).reshape(8, 4).to(dtype)
        memory = torch.zeros(4, 16, dtype=dtype)
        tn.rms_norm(x, out=memory[:, 1::2].T)
        assert array_of(memory[:, 1::2].T).tobytes() == tn.rms_norm(array_of(x)).tobytes()
        assert not memory[:, ::2].any()

    def test_tensors_that_cannot_be_written(self, dtype: Any) -> None:
        x = torch.ones(4, 8, dtype=dtype)
        calls = (
            (torch.empty(4, 8, dtype=dtype, requires_grad=True), "pass out.detach()"),
            (negative(4, 8, dtype=dtype), "out must be a tensor without the negative bit"),
            (torch.empty(4, 8, dtype=dtype, device="meta"), "out is on a device that DLPack"),
        )
        for out, words in calls:
            with pytest.raises(TypeError, match=re.escape(words)):
                tn.layer_norm(x, out=out)
        with pytest.raises(ValueError, match="elements of out must not overlap"):
            tn.layer_norm(x, out=torch.empty(1, 8, dtype=dtype).expand(4, 8))
        with pytest.raises(TypeError, match=re.escape("pass x.detach()")):
            tn.layer_norm(x.requires_grad_())


@pytest.mark.parametrize("dtype", DTYPES)
def test_array_of(dtype: Any) -> None:
    tensor = negative(4, 8, dtype=dtype)
    assert array_of(tensor).astype(np.float64).tolist() == tensor.tolist()
    assert array_of(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_result_with_the_negative_bit(dtype: str) -> None:
    def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return torch._neg_view(-kernels.rms_norm(x, weight, eps))

    subject = tv.torch_subject(rms_norm, operation="rms_norm", dtypes=[dtype])
    assert subject.outputs == ("y", "dx", "dgamma")
    tv.check(subject, tv.case(f"{dtype}-normal-4x17", operation=tv.RMS_NORM))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bound_of_tensors(dtype: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 5, 96, dtype=dtype, requires_grad=True)
    weight = torch.nn.Parameter(torch.randn(96, dtype=dtype))
    dy = torch.randn(4, 5, 96, dtype=dtype)
    y = torch.nn.functional.rms_norm(x, (96,), weight, 1e-6)
    dx, dweight = torch.autograd.grad(y, (x, weight), dy)
    bound = tv.bound("rms_norm", x, weight, eps=1e-6, dy=dy)
    bound.assert_close((y, dx, dweight))
    with pytest.raises(AssertionError, match=r"dgamma is not stable: [89][0-9] of"):
        bound.assert_close(y, dgamma=1.25 * dweight)
