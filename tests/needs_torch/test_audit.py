"""Replaced kernels on tensors: functions, modules, in-place results, autograd."""

from importlib import import_module
from typing import Any

import pytest

from needs_torch.kernels import RMSNorm, fused_add_rms_norm, layer_norm, rms_norm
from truenorm.verify.audit.planted import Kernel, planted_bugs
from truenorm.verify.audit.replacing import AuditTask, Observations, Replacer
from truenorm.verify.operations import parse_operation

torch: Any = import_module("torch")
SHAPE = (2, 3, 40)


def replacer(name: str = "", operation: str = "rms_norm") -> Replacer:
    norm = parse_operation(operation)
    bugs = {bug.name: bug for bug in planted_bugs(norm)}
    return Replacer(Kernel(norm, bugs[name] if name else None), Observations())


def random_tensors(*shapes: tuple[int, ...], dtype: Any = torch.float32) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autograd_of_a_function(dtype: Any) -> None:
    x, weight, bias, dy = random_tensors(SHAPE, (40,), (40,), SHAPE, dtype=dtype)
    replaced = replacer("", "layer_norm")
    results = []
    for function in (layer_norm, replaced.wrap(layer_norm)):
        y = function(x, weight, bias, 1e-5)
        results.append((y, *torch.autograd.grad(y, (x, weight, bias), dy)))
    for right, got in zip(*results, strict=True):
        assert (got.dtype, got.shape) == (right.dtype, right.shape)
        torch.testing.assert_close(got, right)
    assert (replaced.observations.calls, replaced.observations.backward_calls) == (1, 1)


def test_wrong_gradients() -> None:
    x, weight, dy = random_tensors(SHAPE, (40,), SHAPE)
    right = torch.autograd.grad(rms_norm(x, weight, 1e-6), (x, weight), dy)
    y = replacer("dgamma of half the rows").wrap(rms_norm)(x, weight, 1e-6)
    dx, dweight = torch.autograd.grad(y, (x, weight), dy)
    torch.testing.assert_close(dx, right[0])
    half = torch.autograd.grad(rms_norm(x[:1], weight, 1e-6), (weight,), dy[:1])[0]
    torch.testing.assert_close(dweight, half)
    y = replacer("zeros for dx").wrap(rms_norm)(x, weight, 1e-6)
    assert not torch.autograd.grad(y, (x,), dy)[0].any()


def test_unreachable_gradients_are_not_observed() -> None:
    x, weight, dy = random_tensors(SHAPE, (40,), SHAPE)
    replaced = replacer("no eps")
    replaced.wrap(rms_norm)(x, weight.detach(), 1e-6).backward(dy)
    assert x.grad is not None
    assert replaced.observations.results == list(replaced.observations.largest) == ["y", "dx"]


def test_tensors_without_gradients() -> None:
    x, weight = random_tensors(SHAPE, (40,))
    y = replacer("zeros").wrap(rms_norm)(x.detach(), weight.detach(), 1e-6)
    assert not y.requires_grad
    assert not y.any()


def test_a_module() -> None:
    class Replaced(RMSNorm):
        forward = replacer().wrap(RMSNorm.forward)

    x, weight = random_tensors(SHAPE, (40,))
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
    x, residual, weight = (each.detach() for each in random_tensors(SHAPE, SHAPE, (40,)))
    total = x + residual
    copies = x.clone(), residual.clone()
    replaced = replacer("zeros for the sum", "add_rms_norm")
    assert replaced.wrap(fused_add_rms_norm)(*copies, weight, 1e-6) is None
    torch.testing.assert_close(copies[0], rms_norm(total, weight, 1e-6))
    assert not copies[1].any()


def rms_norm_quant(input: Any, weight: Any, scale: Any, eps: float) -> Any:  # noqa: A002
    """Return codes of y over the scale."""
    y = rms_norm(input.float(), weight.float(), eps).to(input.dtype).float()
    return (y / scale).clamp(-448, 448).to(torch.float8_e4m3fn)


def test_quantized_results() -> None:
    """Inputs that require gradients are no error: codes have none."""
    x, weight = random_tensors((3, 64), (64,), dtype=torch.bfloat16)
    scale = torch.tensor([0.02])
    right = rms_norm_quant(x, weight, scale, 1e-5).view(torch.uint8)
    for bug, same in (("right", True), ("truncated", False)):
        task = AuditTask("a:b", "rms_norm,quant=e4m3fn", recipe="late/T, divide", kernel=bug)
        replaced = Replacer(task.make_kernel(), Observations()).wrap(rms_norm_quant)
        codes = replaced(x, weight, scale, 1e-5)
        assert codes.dtype == torch.float8_e4m3fn
        assert torch.equal(codes.view(torch.uint8), right) == same
        raw = Replacer(task.make_kernel(), Observations()).wrap(
            lambda input, weight, scale, eps: right.clone()  # noqa: A006
        )
        assert torch.equal(raw(x, weight, 0.02, 1e-5), right) == same
