"""Quantized norms on tensors, with the arguments and the roundings of engines."""

from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("torch")
torch: Any = import_module("torch")
Tensor = Any
F8 = torch.float8_e4m3fn
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The sizes of e2m1, by code."""


def normalized(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = rows.float()
    rstd = 1 / (wide.square().mean(-1, keepdim=True) + eps).sqrt()
    return wide * rstd * weight.float()


def largest(y: Tensor, group: int = 0) -> Tensor:
    """Return the largest |y| of each group, of shape (rows, groups)."""
    return y.unflatten(-1, (-1, group or y.shape[-1])).abs().amax(-1)


def spread(scale: Tensor, y: Tensor) -> Tensor:
    return scale.repeat_interleave(y.shape[-1] // scale.shape[-1], -1)


def scale_of(amax: Tensor, qmax: float) -> Tensor:
    """Return float32 scales as vLLM computes them: with a floor."""
    return (amax / qmax).clamp(min=1 / (qmax * 512))


def rms_norm_static_fp8_quant(
    result: Tensor,
    input: Tensor,  # noqa: A002 (the name that engines use)
    weight: Tensor,
    scale: Tensor,
    epsilon: float,
) -> None:
    y = normalized(input, weight, epsilon).to(input.dtype).float()
    result.copy_((y * (1 / scale)).clamp(-448, 448))


def rms_norm_dynamic_per_token_quant(
    result: Tensor,
    input: Tensor,  # noqa: A002
    weight: Tensor,
    scale: Tensor,
    epsilon: float,
    scale_ub: Tensor | None,
    residual: Tensor | None,
) -> None:
    """As vLLM's: the sum replaces the residual, and its unrounded value is normalized."""
    assert scale_ub is None
    rows = input.float()
    if residual is not None:
        rows = rows + residual.float()
        residual.copy_(rows)
    xhat = normalized(rows, torch.ones(()), epsilon).to(input.dtype)
    y = (xhat * weight).float()
    scale.copy_(scale_of(largest(y), 448))
    result.copy_((y / scale).clamp(-448, 448))


def rms_norm_per_block_quant(
    result: Tensor,
    input: Tensor,  # noqa: A002
    weight: Tensor,
    scales: Tensor,
    epsilon: float,
    group_size: int,
) -> None:
    """Quantize groups, as vLLM does."""
    y = normalized(input, weight, epsilon).to(input.dtype).float()
    scales.copy_(scale_of(largest(y, group_size), 448))
    result.copy_((y / spread(scales, y)).clamp(-448, 448))


def add_rmsnorm_quant(
    out: Tensor,
    input: Tensor,  # noqa: A002
    residual_in: Tensor,
    residual_out: Tensor,
    yscale: Tensor,
    weight: Tensor,
    epsilon: float,
) -> None:
    """As aiter's: the sum has an argument of its own."""
    rows = input.float() + residual_in.float()
    residual_out.copy_(rows)
    y = normalized(rows, weight, epsilon)
    amax = largest(y).clamp(min=1e-10)
    yscale.copy_(amax / 127)
    out.copy_((y / yscale).round().clamp(-127, 127))


def e2m1(values: Tensor) -> Tensor:
    """Return pairs of e2m1 codes in bytes, the first in the low half; ties to even."""
    sizes = torch.tensor(E2M1)
    last = (sizes[1:] + sizes[:-1]) / 2  # the largest number that is rounded to each code
    last[1::2] = torch.nextafter(last[1::2], torch.zeros(()))  # these codes are odd
    codes = torch.bucketize(values.abs(), last).to(torch.uint8)
    codes = codes | (values.signbit().to(torch.uint8) << 3)
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def rmsnorm_fp4quant(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    y_fp4: Tensor,
    block_scale: Tensor,
    global_scale: Tensor,
    eps: float,
) -> None:
    """As FlashInfer's; a scale with one axis is written in blocks of 128x4."""
    y = normalized(input, weight, eps)
    scale = (largest(y, 16) * global_scale / 6).clamp(max=448).to(F8)
    unit = spread(scale.float(), y)
    values = torch.where(unit > 0, y * (global_scale / unit), 0.0)
    y_fp4.view(torch.uint8).copy_(e2m1(values))
    if block_scale.ndim == 1:
        scale = swizzled(scale.view(torch.uint8))
        block_scale = block_scale.view(torch.uint8)
    block_scale.copy_(scale)


def swizzled(scale: Tensor) -> Tensor:
    """Write scales one by one to the places that tensor cores read."""
    rows, groups = scale.shape
    across = -(-groups // 4)
    memory = torch.zeros(-(-rows // 128) * across * 512, dtype=scale.dtype)
    r, g = torch.meshgrid(torch.arange(rows), torch.arange(groups), indexing="ij")
    block = (r // 128) * across + g // 4
    memory[block * 512 + (r % 32) * 16 + (r % 128) // 32 * 4 + g % 4] = scale
    return memory


def with_amax(x: Tensor, weight: Tensor, eps: float, scale: Tensor) -> tuple[Tensor, Tensor]:
    """As Transformer Engine: the scale multiplies, and amax is that of y."""
    y = normalized(x, weight, eps)
    return (y * scale).clamp(-448, 448).to(F8), y.abs().amax().reshape(1)


def mxfp8(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return scales that are powers of two, by columns in memory."""
    y = normalized(x, weight, eps).to(x.dtype).float()
    amax = largest(y, 32).double()
    fraction, exponent = torch.frexp(amax)
    power = exponent - 9 + (fraction > 0.875)
    power = torch.where(amax > 0, power, -127).clamp(-127, 127)
    scale = torch.where(amax.isfinite(), power + 127, 255).to(torch.uint8)
    unit = torch.ldexp(torch.ones_like(y), spread(power, y))
    by_columns = scale.T.contiguous().T.view(torch.float8_e8m0fnu)
    return (y / unit).clamp(-448, 448).to(F8), by_columns


def layer_norm_int8(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, eps: float) -> Tensor:
    """Return the codes of a layer norm; a NaN becomes 127, since int8 has none."""
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    y = (normalized(centred, weight, eps) + bias.float()).to(x.dtype).float()
    values = (y / scale).round().clamp(-127, 127)
    return values.nan_to_num(nan=127.0).to(torch.int8)
