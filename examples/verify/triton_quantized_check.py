"""RMSNorm with int8 codes and a scale for each row, in Triton.

It needs PyTorch, Triton and the extra verify of truenorm. On a GPU it is compiled. Without one,
Triton's interpreter runs it on a CPU:

    TRITON_INTERPRET=1 truenorm verify triton_quantized_check.py --recipe "late/T, divide"

float16 only: the interpreter of Triton 3.9.0 truncates where it should round to bfloat16.
"""

from typing import Any

import torch  # type: ignore[import-not-found]
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

import truenorm.verify as tv

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ELEMENTS = 2**15  # of a program's block: the interpreter is slow for each program


@triton.jit  # type: ignore[untyped-decorator]
def kernel(  # type: ignore[no-untyped-def]
    codes,
    scales,
    x,
    weight,
    step,
    rows,
    size,
    eps,
    ROWS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Normalize and quantize some rows; elements beyond their end are zero, and not stored."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < size)
    values = tl.load(x + row * step + column, mask=inside, other=0.0)
    wide = values.to(tl.float32)
    rstd = 1 / tl.sqrt(tl.sum(wide * wide, axis=1, keep_dims=True) / size + eps)
    gain = tl.load(weight + column, mask=column < size, other=0.0).to(tl.float32)
    y = (wide * rstd * gain).to(values.dtype).to(tl.float32)
    amax = tl.max(tl.abs(y), axis=1, keep_dims=True)
    scale = tl.maximum(amax / 127, 1.1920928955078125e-07)
    broken = tl.sum((y != y).to(tl.int32), axis=1, keep_dims=True) > 0
    scale = tl.where(broken, float("nan"), scale)
    ratio = tl.clamp(y / scale, -127.0, 127.0)
    # 1.5*2^23 rounds to an integer, ties to even.
    rounded = (ratio + 12582912.0) - 12582912.0
    rounded = tl.where(broken, 0.0, rounded)
    tl.store(codes + row * size + column, rounded.to(tl.int8), mask=inside)
    tl.store(scales + row, scale, mask=row < rows)


def rms_norm_int8(out: Any, input: Any, weight: Any, scale: Any, eps: float) -> None:  # noqa: A002
    """Launch the kernel; rows may be slices of a wider tensor."""
    rows, size = input.shape
    block = triton.next_power_of_2(size)
    at_once = max(1, ELEMENTS // block)
    programs = triton.cdiv(rows, at_once)
    step = input.stride(0)
    kernel[(programs,)](
        out, scale, input, weight, step, rows, size, eps, ROWS=at_once, BLOCK=block
    )


subject = tv.torch_subject(
    rms_norm_int8,
    operation="rms_norm,quant=int8,scale=per-token",
    form="out",
    device=DEVICE,
    name="my Triton kernel",
    dtypes=["float16"],
)
