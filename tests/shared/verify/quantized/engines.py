"""Quantized norms of inference engines, written from their sources: all are right but one."""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from shared.verify.quantized.kernels import Array, F, Kernel, encode, nan_clamped, quantized_norm


class Engine(NamedTuple):
    """A kernel, and what the report must say of it."""

    operation: str
    recipe: str
    way: str = ""
    floor: str = ""
    steps: dict[str, Any] = {}  # noqa: RUF012 (a NamedTuple has no mutable state)

    @property
    def kernel(self) -> Kernel:
        """Return the kernel; its recipe is the one that is to be named."""
        norm, _, via = self.recipe.partition("/")
        steps = {"norm": norm, "via": "direct" if via == "direct" else "T", **self.steps}
        return Kernel(quantized_norm(self.operation), **steps)


def without_nan(groups: Array) -> Array:
    """Return the largest |y| of each group as fmax of CUDA does: NaN is ignored."""
    return np.asarray(np.fmax.reduce(np.abs(groups), -1, initial=F(0)))


def at_least(number: float) -> Any:
    """Return a step that computes amax, at least a number."""
    return lambda groups: np.maximum(np.abs(groups).max(-1), F(number))


def floored(qmax: float, least: float) -> Any:
    """Return a step that computes a scale, at least a number."""
    return lambda amax: np.maximum(amax / F(qmax), F(least))


def rounded_after_scaling(values: Array, kind: str) -> Array:
    """Round to bfloat16 before the conversion, as FlashInfer did before #4167."""
    return encode(values.astype(ml_dtypes.bfloat16).astype(F), kind)


CLAMP = {"convert": nan_clamped}
VLLM = {**CLAMP, "amax": without_nan}
LEAST = 1 / (448 * 512)
ENGINES = {
    "vLLM rms_norm_static_fp8_quant": Engine("rms_norm,quant=e4m3fn,nan=clamp", "late/T",
        "reciprocal", "", {**CLAMP, "way": "reciprocal"}),
    "vLLM fused_add_rms_norm_static_fp8_quant": Engine("add_rms_norm,quant=e4m3fn,nan=clamp",
        "late/T", "reciprocal", "", {**CLAMP, "way": "reciprocal"}),
    "vLLM rms_norm_dynamic_per_token_quant, fp8": Engine(
        "add_rms_norm,sum=unrounded,quant=e4m3fn,scale=per-token,nan=clamp", "early/T", "divide",
        "1/(qmax*512)", {**VLLM, "scale": floored(448, LEAST)}),
    "vLLM rms_norm_dynamic_per_token_quant, int8": Engine(
        "rms_norm,quant=int8,scale=per-token,nan=clamp", "early/T", "reciprocal", "float32 eps",
        {**VLLM, "way": "reciprocal", "scale": floored(127, 2.0**-23)}),
    "vLLM rms_norm_per_block_quant": Engine("rms_norm,quant=e4m3fn,scale=per-128,nan=clamp",
        "early/T", "", "1/(qmax*512)", {**VLLM, "scale": floored(448, LEAST)}),
    "FlashInfer rmsnorm_quant, e4m3": Engine("rms_norm,quant=e4m3fn,nan=clamp", "late/direct",
        steps={**CLAMP, "way": "reciprocal"}),
    "FlashInfer rmsnorm_quant, e5m2": Engine("rms_norm,quant=e5m2,nan=clamp", "late/direct",
        steps={**CLAMP, "way": "reciprocal"}),
    "FlashInfer, the cast of layernorm_quant before #4167": Engine("rms_norm,quant=e4m3fn",
        "late/T, scaled too", steps={"way": "reciprocal", "convert": rounded_after_scaling}),
    "FlashInfer rmsnorm_fp4quant": Engine("rms_norm,quant=nvfp4", "product/direct"),
    "TensorRT-LLM generalRmsNorm": Engine(
        "rms_norm,quant=e4m3fn,scale=per-token",
        "late/T",
        "qmax/amax",
        "1/(qmax*512)",
        {
            "amax": at_least(1e-6),
            "scale": floored(448, LEAST),
            "scaled": lambda y, _, amax: y * np.minimum(F(448) / amax, F(448 * 512)),
        },
    ),
    "Transformer Engine, fp8 and amax": Engine(
        "rms_norm,quant=e4m3fn,direction=multiply,amax=true", "late/direct"),
    "aiter add_rmsnorm_quant": Engine("add_rms_norm,sum=unrounded,quant=e4m3fnuz,scale=per-token",
        "late/direct", "", "amax >= 1e-10",
        {"way": "reciprocal", "amax": at_least(1e-10), "scale": lambda amax: amax * F(1 / 240)}),
    "aiter add_rmsnorm_quant, MXFP8": Engine("rms_norm,quant=mxfp8", "late/direct"),
    "Transformer Engine, norm and then MXFP8": Engine("rms_norm,quant=mxfp8", "late/T"),
    "MXFP4, rounded up": Engine("rms_norm,quant=mxfp4", "late/T"),
}  # fmt: skip
"""Kernels without a finding."""
AITER_TRITON = Engine(
    "rms_norm,quant=int8,scale=per-token", "late/direct", "", "none", {"way": "reciprocal"}
)
"""aiter's Triton kernel: 1/scale overflows where the largest |y| is below 4e-37."""
