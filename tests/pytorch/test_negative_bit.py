"""Tensors with the negative bit, as ``z.conj().imag``: PyTorch negates them when they are read."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import truenorm as tn
import truenorm.verify as tv
from pytorch import kernels
from pytorch.kernels import Tensor
from truenorm.verify.running.pytorch import array_of


def negative(*shape: int, dtype: Any = torch.float32) -> Tensor:
    """Return random numbers in a tensor with the negative bit."""
    made = torch.Generator().manual_seed(0)
    tensor = torch._neg_view(torch.randn(shape, generator=made).to(dtype))
    assert tensor.is_neg()
    return tensor


def test_the_imaginary_part_of_a_conjugate_has_it() -> None:
    """And through DLPack its memory has the other sign, which no error tells."""
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
def test_refused(argument: str) -> None:
    name = argument.split()[0]
    said = (
        f"{name} must be a tensor without the negative bit .+, got a Tensor with it: pass {name}."
    )
    with pytest.raises(TypeError, match=said + re.escape("resolve_neg()")):
        CALLS[argument](negative(4, 8), negative(8))


def test_what_to_pass_instead() -> None:
    x = negative(4, 8)
    right = tn.layer_norm(np.array(x.tolist(), np.float32))
    assert tn.layer_norm(x.resolve_neg()).tobytes() == right.tobytes()
    required = x.requires_grad_()
    with pytest.raises(TypeError, match=re.escape("pass x.detach().resolve_neg()")):
        tn.layer_norm(required)
    assert tn.layer_norm(required.detach().resolve_neg()).tobytes() == right.tobytes()


def test_out_is_no_tensor() -> None:
    x = np.ones((4, 8), np.float32)
    for out in (torch.empty(4, 8), negative(4, 8)):
        with pytest.raises(TypeError, match="out is a Tensor: pass a NumPy array"):
            tn.layer_norm(x, out=out)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_judge_reads_the_numbers(dtype: Any) -> None:
    tensor = negative(4, 8, dtype=dtype)
    assert array_of(tensor).astype(np.float64).tolist() == tensor.tolist()
    assert array_of(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_right_kernel_whose_result_has_it_passes(dtype: str) -> None:
    def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return torch._neg_view(-kernels.rms_norm(x, weight, eps))

    subject = tv.torch_subject(rms_norm, operation="rms_norm", dtypes=[dtype])
    assert subject.outputs == ("y", "dx", "dgamma")
    tv.check(subject, tv.case(f"{dtype}-normal-4x17", operation=tv.RMS_NORM))
