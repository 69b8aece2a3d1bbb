"""Kernels on tensors, replaced: functions, modules, results in place, gradients by autograd."""

from importlib import import_module
from typing import Any

import pytest

from pytorch.kernels import RMSNorm, fused_add_rms_norm, layer_norm, rms_norm
from truenorm.verify.audit.planted import Kernel, planted_kernels
from truenorm.verify.audit.replacing import Replacing, Seen
from truenorm.verify.operations import parse_operation
from truenorm.verify.operations.norms import Norm

torch: Any = import_module("torch")
SHAPE = (2, 3, 40)


def replacing(name: str = "", operation: str = "rms_norm") -> Replacing:
    norm = parse_operation(operation)
    assert isinstance(norm, Norm)
    known = {each.name: each for each in planted_kernels(norm)}
    return Replacing(Kernel(norm, known[name] if name else None), Seen())


def drawn(*shapes: tuple[int, ...], dtype: Any = torch.float32) -> list[Any]:
    made = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=made).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autograd_of_a_function(dtype: Any) -> None:
    x, weight, bias, dy = drawn(SHAPE, (40,), (40,), SHAPE, dtype=dtype)
    found = replacing("", "layer_norm")
    results = []
    for function in (layer_norm, found.instead_of(layer_norm)):
        y = function(x, weight, bias, 1e-5)
        results.append((y, *torch.autograd.grad(y, (x, weight, bias), dy)))
    for right, got in zip(*results, strict=True):
        assert (got.dtype, got.shape) == (right.dtype, right.shape)
        torch.testing.assert_close(got, right)
    assert (found.seen.calls, found.seen.backwards) == (1, 1)


def test_wrong_gradients() -> None:
    x, weight, dy = drawn(SHAPE, (40,), SHAPE)
    right = torch.autograd.grad(rms_norm(x, weight, 1e-6), (x, weight), dy)
    y = replacing("dgamma of half the rows").instead_of(rms_norm)(x, weight, 1e-6)
    dx, dweight = torch.autograd.grad(y, (x, weight), dy)
    torch.testing.assert_close(dx, right[0])
    half = torch.autograd.grad(rms_norm(x[:1], weight, 1e-6), (weight,), dy[:1])[0]
    torch.testing.assert_close(dweight, half)
    y = replacing("zeros for dx").instead_of(rms_norm)(x, weight, 1e-6)
    assert not torch.autograd.grad(y, (x,), dy)[0].any()


def test_gradients_that_nobody_can_ask_for_are_not_noted() -> None:
    x, weight, dy = drawn(SHAPE, (40,), SHAPE)
    found = replacing("no eps")
    found.instead_of(rms_norm)(x, weight.detach(), 1e-6).backward(dy)
    assert x.grad is not None
    assert found.seen.results == list(found.seen.largest) == ["y", "dx"]


def test_what_requires_no_gradient_has_none() -> None:
    x, weight = drawn(SHAPE, (40,))
    y = replacing("zeros").instead_of(rms_norm)(x.detach(), weight.detach(), 1e-6)
    assert not y.requires_grad
    assert not y.any()


def test_a_module() -> None:
    class Replaced(RMSNorm):
        forward = replacing().instead_of(RMSNorm.forward)

    x, weight = drawn(SHAPE, (40,))
    results = []
    for kind in (RMSNorm, Replaced):
        module = kind(40, eps=1e-3)
        module.weight = torch.nn.Parameter(weight.detach().clone())
        y = module(x)
        y.square().sum().backward()
        results.append((y, module.weight.grad))
    for right, got in zip(*results, strict=True):
        torch.testing.assert_close(got, right)


def test_results_in_place() -> None:
    x, residual, weight = (each.detach() for each in drawn(SHAPE, SHAPE, (40,)))
    total = x + residual
    given = x.clone(), residual.clone()
    found = replacing("zeros for the sum", "add_rms_norm")
    assert found.instead_of(fused_add_rms_norm)(*given, weight, 1e-6) is None
    torch.testing.assert_close(given[0], rms_norm(total, weight, 1e-6))
    assert not given[1].any()
