"""Right kernels on tensors, in every form: computed in float64 and rounded once."""

from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("torch")
torch: Any = import_module("torch")
Tensor = Any


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.double()
    rstd = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (wide * rstd * weight.double()).to(x.dtype)


def layer_norm(hidden_states: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    wide = hidden_states.double()
    centred = wide - wide.mean(-1, keepdim=True)
    rstd = (centred.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    return (centred * rstd * weight.double() + bias.double()).to(hidden_states.dtype)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, variance_epsilon: float
) -> tuple[Tensor, Tensor]:
    total = x + residual
    return rms_norm(total, weight, variance_epsilon), total


def rms_norm_out(out: Tensor, input: Tensor, weight: Tensor, epsilon: float) -> None:  # noqa: A002
    """As vLLM's ``rms_norm``."""
    out.copy_(rms_norm(input, weight, epsilon))


def fused_add_rms_norm(
    input: Tensor,  # noqa: A002
    residual: Tensor,
    weight: Tensor,
    epsilon: float,
) -> None:
    """As vLLM's: write y to the input, and the sum to the residual."""
    y, total = add_rms_norm(input, residual, weight, epsilon)
    input.copy_(y)
    residual.copy_(total)


class RMSNorm(torch.nn.Module):  # type: ignore[misc]
    """As in Hugging Face, except for the rounding."""

    def __init__(self, hidden_size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        return rms_norm(hidden_states, self.weight, self.variance_epsilon)


class AddLayerNorm(torch.nn.Module):  # type: ignore[misc]
    """A module whose parameters belong to a submodule."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(dim, eps)

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        return layer_norm(total, self.norm.weight, self.norm.bias, self.norm.eps), total


def saving_rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, ...]:
    """Return y and the saved values for backward."""
    wide, gain = x.double(), weight.double()
    rstd = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return rms_norm(x, weight, eps), wide * rstd, rstd, gain, eps


def rms_norm_backward(
    dy: Tensor, xhat: Tensor, rstd: Tensor, gain: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    g = gain * dy.double()
    size = g.shape[-1]
    # g - xhat*mean(g*xhat) without a cancellation that float64 feels.
    projected = (g * xhat).sum(-1, keepdim=True) / size
    dx = rstd * (g - xhat * projected)
    if size == 1:
        dx = rstd**3 * g * eps
    return dx.to(dy.dtype), (dy.double() * xhat).sum(0).to(dy.dtype)
