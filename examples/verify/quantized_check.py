"""RMSNorm with fp8 codes in PyTorch: ``truenorm verify quantized_check.py --recipe late/T``.

It needs PyTorch, and runs on a CPU. The arguments are those of vLLM's
``rms_norm_static_fp8_quant``. The subject has a bug that no tolerance shows: it does not round y
to bfloat16 before y is scaled. `mended` rounds it.
"""

from typing import Any

import truenorm.verify as tv


def normalized(x: Any, weight: Any, eps: float) -> Any:
    """Return y in float32."""
    wide = x.float()
    return wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight.float()


def encode(result: Any, y: Any, scale: Any) -> None:
    """Write the codes of y."""
    result.copy_((y * (1 / scale)).clamp(-448, 448))


def rms_norm_quant(result: Any, input: Any, weight: Any, scale: Any, epsilon: float) -> None:  # noqa: A002
    """Scale y before it is rounded, as TensorRT-LLM#14250 did."""
    encode(result, normalized(input, weight, epsilon), scale)


def mended_quant(result: Any, input: Any, weight: Any, scale: Any, epsilon: float) -> None:  # noqa: A002
    """Round y to the type of the input, as a norm without quantization does."""
    y = normalized(input, weight, epsilon).to(input.dtype)
    encode(result, y.float(), scale)


subject, mended = (
    tv.torch_subject(
        kernel,
        operation="rms_norm,quant=e4m3fn",
        form="out",
        name=kernel.__name__,
        dtypes=["bfloat16"],
    )
    for kernel in (rms_norm_quant, mended_quant)
)
