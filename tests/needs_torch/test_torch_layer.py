"""The example with layers of PyTorch: its gradients, and how it joins the graph."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from needs_torch.kernels import Tensor
from shared.programs import python

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_layer.py"
example: Any = import_module("examples.torch_layer")
LAYERS = {
    "LayerNorm": (example.LayerNorm, torch.nn.LayerNorm),
    "RMSNorm": (example.RMSNorm, torch.nn.RMSNorm),
}
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
OPTIONS: dict[str, dict[str, Any]] = {
    "scaled": {},
    "plain": {"elementwise_affine": False},
    "two axes": {"normalized_shape": (6, 32)},
    "large eps": {"eps": 0.5},
}


def pair(name: str, dtype: Any, **options: Any) -> tuple[Any, Any]:
    """Return a layer of the example, and PyTorch's own with the same parameters in float64."""
    shape = options.pop("normalized_shape", 32)
    layer, own = (each(shape, **{"eps": 1e-5} | options) for each in LAYERS[name])
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    layer = layer.to(dtype)
    own.load_state_dict(layer.state_dict())
    return layer, own.double()


def passes(layer: Any, x: Tensor, dy: Tensor) -> list[Tensor]:
    """Return y and the gradients of x and of the parameters."""
    x = x.detach().clone().requires_grad_()
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], dy)]


def assert_rounded_once(results: list[Tensor], right: list[Tensor]) -> None:
    """Compare results with those of PyTorch in float64.

    A rounded result is off by half an ulp, at most eps/2 of it or half the smallest subnormal.
    The error of PyTorch's own is below 2^-40 of the largest element.
    """
    for result, wanted in zip(results, right, strict=True):
        info = torch.finfo(result.dtype)
        allowed = info.eps / 2 * wanted.abs() + info.tiny * info.eps / 2
        allowed = allowed + 2**-40 * wanted.abs().max()
        assert result.shape == wanted.shape
        assert ((result.double() - wanted).abs() <= allowed).all()


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
class TestGradients:
    @pytest.mark.parametrize("options", OPTIONS)
    def test_those_of_pytorch(self, name: str, dtype: Any, options: str) -> None:
        layer, own = pair(name, dtype, **OPTIONS[options])
        x, dy = torch.randn(2, 4, 6, 32).to(dtype)
        results = passes(layer, x, dy)
        assert {each.dtype for each in results} == {dtype}
        assert_rounded_once(results, passes(own, x.double(), dy.double()))

    def test_not_contiguous(self, name: str, dtype: Any) -> None:
        layer, own = pair(name, dtype)
        x = torch.randn(32, 6, 8).to(dtype).permute(2, 1, 0)[::2]
        dy = torch.randn(32).to(dtype).expand(4, 6, 32)
        assert not x.is_contiguous()
        assert 0 in dy.stride()
        x = x.requires_grad_()
        y = layer(x)
        results = [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], dy)]
        assert_rounded_once(results, passes(own, x.double(), dy.double()))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_parameters_of_float32(name: str, dtype: Any) -> None:
    layer, own = pair(name, torch.float32)
    x, dy = torch.randn(2, 4, 32).to(dtype)
    results = passes(layer, x, dy)
    assert [each.dtype for each in results[:3]] == [dtype, dtype, torch.float32]
    assert_rounded_once(results, passes(own, x.double(), dy.double()))


def test_without_bias() -> None:
    layer, own = pair("LayerNorm", torch.float32, bias=False)
    x, dy = torch.randn(2, 4, 32)
    assert_rounded_once(passes(layer, x, dy), passes(own, x.double(), dy.double()))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_default_eps_of_rms_norm(dtype: Any) -> None:
    """In rows of small numbers another eps would change the second digit."""
    layer, own = example.RMSNorm(32, dtype=dtype), torch.nn.RMSNorm(32, dtype=dtype)
    assert layer.eps is None
    x = (torch.randn(4, 32, dtype=torch.float64) * 2**-12).to(dtype)
    torch.testing.assert_close(layer(x), own(x))


@pytest.mark.parametrize("name", LAYERS)
class TestGraph:
    def test_inputs_that_need_no_gradient(self, name: str) -> None:
        layer, own = pair(name, torch.float32)
        x, dy = torch.randn(2, 4, 32)
        right = passes(own, x.double(), dy.double())
        layer(x).backward(dy)  # x needs none
        assert_rounded_once([layer.weight.grad], right[2:3])
        layer.requires_grad_(False).zero_grad()
        x.requires_grad_()
        layer(x).backward(dy)
        assert_rounded_once([x.grad], right[1:2])
        assert layer.weight.grad is None
        assert not layer(x.detach()).requires_grad

    def test_changes_in_place(self, name: str) -> None:
        layer, _ = pair(name, torch.float32)
        x = torch.randn(4, 32)
        y = layer(x)
        with torch.no_grad():
            layer.weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    def test_second_derivatives(self, name: str) -> None:
        layer, _ = pair(name, torch.float64)
        x = torch.randn(4, 32, dtype=torch.float64, requires_grad=True)
        (dx,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            dx.sum().backward()


def test_program() -> None:
    completed = python("-W", "error", EXAMPLE)
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == ["LayerNorm"] * 4 + ["RMSNorm"] * 4
    assert lines[3].startswith("LayerNorm, torch.float64: input ")
