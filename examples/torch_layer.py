"""Layers of PyTorch whose forward and backward passes are those of truenorm, for CPU tensors.

``python examples/torch_layer.py`` compares their gradients with those of PyTorch's own layers.
"""

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]

import truenorm as tn

Tensor = Any


class Norm(torch.autograd.Function):  # type: ignore[misc]
    """A pair of forward and backward functions of truenorm as one operation of PyTorch."""

    @staticmethod
    def forward(ctx: Any, passes: Any, options: dict[str, Any], *inputs: Tensor) -> Tensor:
        forward, ctx.backward_pass = passes
        ctx.save_for_backward(*inputs)
        arrays = (None if each is None else each.detach() for each in inputs)
        y, ctx.statistics = forward(*arrays, **options)
        return tensor_of(y)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        inputs = ctx.saved_tensors  # raises if one of them was changed in place since forward
        gradients = ctx.backward_pass(dy.detach(), ctx.statistics)
        return None, None, *map(tensor_of, gradients[: len(inputs)])


def tensor_of(array: Any) -> Tensor:
    """Return a tensor in the memory of an array. PyTorch takes no bfloat16 from NumPy."""
    if array is None:
        return None
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class LayerNorm(torch.nn.LayerNorm):  # type: ignore[misc]
    """`torch.nn.LayerNorm`, with the same arguments, parameters and checkpoints."""

    def forward(self, x: Tensor) -> Tensor:
        options = {"axis": last_axes(self), "eps": self.eps}
        passes = tn.layer_norm_forward, tn.layer_norm_backward
        return Norm.apply(passes, options, x, self.weight, self.bias)


class RMSNorm(torch.nn.RMSNorm):  # type: ignore[misc]
    """`torch.nn.RMSNorm`, with the same arguments, parameters and checkpoints."""

    def forward(self, x: Tensor) -> Tensor:
        eps = self.eps
        if eps is None:  # that of the type in which PyTorch computes
            eps = torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps
        options = {"axis": last_axes(self), "eps": eps}
        return Norm.apply((tn.rms_norm_forward, tn.rms_norm_backward), options, x, self.weight)


def last_axes(layer: Any) -> tuple[int, ...]:
    """Return the axes that a layer normalizes."""
    return tuple(range(-len(layer.normalized_shape), 0))


def gradients_of(layer: Any, x: Tensor, dy: Tensor) -> dict[str, Tensor]:
    """Return the gradients of the input and the parameters of a layer."""
    x = x.clone().requires_grad_()
    parameters = dict(layer.named_parameters())
    gradients = torch.autograd.grad(layer(x), [x, *parameters.values()], dy)
    return dict(zip(["input", *parameters], gradients, strict=True))


def main() -> None:
    """Print the largest difference of each gradient, relative to its largest element."""
    torch.manual_seed(0)
    x, dy = torch.randn(2, 8, 64, 256, dtype=torch.float64)
    for own, layer in ((torch.nn.LayerNorm, LayerNorm), (torch.nn.RMSNorm, RMSNorm)):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            arguments = x.to(dtype), dy.to(dtype)
            expected = gradients_of(own(256, eps=1e-5, dtype=dtype), *arguments)
            gradients = gradients_of(layer(256, eps=1e-5, dtype=dtype), *arguments)
            differences = (
                f"{name} {float((gradients[name] - right).abs().max() / right.abs().max()):.1e}"
                for name, right in expected.items()
            )
            print(f"{layer.__name__}, {dtype}: {', '.join(differences)}")


if __name__ == "__main__":
    main()
