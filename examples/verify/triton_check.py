"""An RMSNorm in Triton: ``truenorm verify triton_check.py --dtype float16``.

It needs PyTorch, Triton and the extra verify of truenorm. On a GPU it is compiled. Without one,
Triton's interpreter runs it on a CPU:

    TRITON_INTERPRET=1 truenorm verify triton_check.py --dtype float16

That passes. The kernel computes in float32 and rounds once, which the report calls *late*. With
``--dtype bfloat16`` it fails: the interpreter of Triton 3.9.0 truncates where the kernel rounds,
so its bits match no recipe and subnormal numbers are wrong. Squares of 1e30 overflow there, too.
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
    out,
    x,
    weight,
    step,
    rows,
    size,
    eps,
    ROWS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Normalize some rows; elements beyond their end are zero, and not stored."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < size)
    values = tl.load(x + row * step + column, mask=inside, other=0.0).to(tl.float32)
    rstd = 1 / tl.sqrt(tl.sum(values * values, axis=1, keep_dims=True) / size + eps)
    gain = tl.load(weight + column, mask=column < size, other=0.0).to(tl.float32)
    y = (values * rstd * gain).to(out.dtype.element_ty)
    tl.store(out + row * size + column, y, mask=inside)


def rms_norm(out: Any, input: Any, weight: Any, eps: float) -> None:  # noqa: A002
    """Launch the kernel; rows may be slices of a wider tensor."""
    rows, size = input.shape
    block = triton.next_power_of_2(size)
    at_once = max(1, ELEMENTS // block)
    programs = triton.cdiv(rows, at_once)
    step = input.stride(0)
    kernel[(programs,)](out, input, weight, step, rows, size, eps, ROWS=at_once, BLOCK=block)


subject = tv.torch_subject(
    rms_norm,
    operation="rms_norm",
    form="out",
    device=DEVICE,
    name="my Triton kernel",
    dtypes=["float32", "float16", "bfloat16"],
    also=["padded-rows"],
)
