"""Honest kernels to score: they need PyTorch alone."""

import copy
from functools import cache
from typing import Any

import torch  # type: ignore[import-not-found]

Tensor = Any


def in_float64(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    wide = x.double()
    centred = wide - wide.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return (scaled * gamma.double() + beta.double()).to(x.dtype)


def two_passes(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * gamma + beta


def two_passes_wide(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """For types of 16 bits: compute in float32."""
    return two_passes(x.float(), gamma.float(), beta.float(), eps).to(x.dtype)


def by_var_mean(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return torch.addcmul(beta, (x - mean) / (variance + eps).sqrt(), gamma)


def by_einsum(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    size = x.shape[-1]
    centred = x - x.sum(-1, keepdim=True) / size
    variance = torch.einsum("...i,...i->...", centred, centred)[..., None] / size
    return centred / (variance + eps).sqrt() * gamma + beta


def calls_pytorch(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], gamma, beta, eps)


def removes_nan(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return torch.nan_to_num(in_float64(x, gamma, beta, eps))


def corrected(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Subtract the mean a second time, which removes its rounding error."""
    centred = x - x.mean(-1, keepdim=True)
    return two_passes(centred, gamma, beta, eps)


def in_blocks(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Sum blocks of 32 columns, padded with zeros, then their sums."""
    size = x.shape[-1]

    def mean(rows: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(rows, (0, -size % 32))
        return padded.unflatten(-1, (-1, 32)).sum(-1).sum(-1, keepdim=True) / size

    centred = x - mean(x)
    return centred * (mean(centred.square()) + eps).rsqrt() * gamma + beta


class _ByHand(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        rstd = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + eps)
        context.save_for_backward(copy.copy(x), gamma, mean, rstd)
        return (x - mean) * rstd * gamma + beta

    @staticmethod
    def backward(context: Any, dy: Tensor) -> Any:
        x, gamma, mean, rstd = context.saved_tensors
        return *gradients(dy, x, gamma, mean, rstd), None


def gradients(dy: Tensor, x: Tensor, gamma: Tensor, mean: Tensor, rstd: Tensor) -> Any:
    scaled = (x - mean) * rstd
    g = dy * gamma
    along = (g * scaled).mean(-1, keepdim=True)
    dx = rstd * (g - g.mean(-1, keepdim=True) - scaled * along)
    rows = -1, x.shape[-1]
    return dx, (dy * scaled).reshape(rows).sum(0), dy.reshape(rows).sum(0)


def by_hand(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return _ByHand.apply(x, gamma, beta, eps)


def compiled(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return _compiled()(x, gamma, beta, eps)


@cache
def _compiled() -> Any:
    return torch.compile(
        in_float64, backend="aot_eager", dynamic=True
    )  # which imports modules for seconds


def forward(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Any:
    """Return what `gradients` needs beside y."""
    mean = x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + eps)
    return (x - mean) * rstd * gamma + beta, x, gamma, mean, rstd
