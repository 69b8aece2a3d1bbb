"""Kernels that recordings are run with: they need PyTorch alone."""

import os
import signal
import time
from typing import Any

import torch  # type: ignore[import-not-found]

Tensor = Any


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.double()
    rstd = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    gain = 1 if weight is None else weight.double()
    return (wide * rstd * gain).to(x.dtype)


def slow_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    time.sleep(0.05)
    return rms_norm(x, weight, eps)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    total = x + residual
    return rms_norm(total, weight, eps), total


def rms_norm_out(out: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    out.copy_(rms_norm(x, weight, eps))


def unwritten_column_out(out: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    out[..., :-1] = rms_norm(x, weight, eps)[..., :-1]


def add_rms_norm_inplace(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
    y, total = add_rms_norm(x, residual, weight, eps)
    x.copy_(y)
    residual.copy_(total)


class RMSNorm(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


LayerNorm = torch.nn.LayerNorm


def one_result_of_two(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    if x.shape[-1] == 67:
        return (rms_norm(x + residual, weight, eps),)
    return add_rms_norm(x, residual, weight, eps)


def quantized(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return codes of e4m3fn and a scale for each row, from float64."""
    wide = x.double()
    y = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()
    scale = (y.abs().amax(-1, keepdim=True) / 448).float()
    codes = (y / scale.double()).nan_to_num(0).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes, scale


def scales_upside_down(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the scale of the last row first."""
    codes, scale = quantized(x, weight, eps)
    return codes, scale.flip(0)


def quantized_out(out: Tensor, x: Tensor, weight: Tensor, scale: Tensor, eps: float) -> None:
    codes, scales = quantized(x, weight, eps)
    out.copy_(codes)
    scale.copy_(scales)


def group_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return torch.nn.functional.group_norm(x, 4, weight, bias, eps)


def crashes(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if x.shape[-1] == 17:
        os.kill(os.getpid(), signal.SIGSEGV)
    return rms_norm(x, weight, eps)


def exits(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if x.shape[-1] == 17:
        os._exit(0)
    return rms_norm(x, weight, eps)


def raises(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if x.shape[-1] == 17:
        raise ValueError("no 17")
    return rms_norm(x, weight, eps)


def rejects_all(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if x.shape[-1] == 64 and bool((x == 1).all()):
        return rms_norm(x, weight, eps)
    raise RuntimeError("no")


def hangs(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if x.shape[-1] == 17:
        time.sleep(1000)
    return rms_norm(x, weight, eps)
