"""Wrong quantized norms: each is one step away from a right kernel, and has one fault.

`causes.toml` has what the report must name.
"""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from shared.verify.quantized.engines import rounded_after_scaling, without_nan
from shared.verify.quantized.kernels import Array, F, Kernel, encode, nan_clamped, quantized_norm

STATIC = "rms_norm,quant=e4m3fn"
TOKEN = "rms_norm,quant=e4m3fn,scale=per-token"
GROUPS = "rms_norm,quant=e4m3fn,scale=per-128"
INT8 = "rms_norm,quant=int8,scale=per-token"
MXFP8, MXFP4, NVFP4 = (f"rms_norm,quant={name}" for name in ("mxfp8", "mxfp4", "nvfp4"))


class Planted(NamedTuple):
    """A wrong kernel, and the check that finds it."""

    operation: str
    steps: dict[str, Any]
    found_by: str
    recipe: str = ""
    kind: type[Kernel] = Kernel
    dtype: str = "bfloat16"

    @property
    def kernel(self) -> Kernel:
        return self.kind(quantized_norm(self.operation), **self.steps)


# Conversion


def not_saturated(values: Array, kind: str) -> Array:
    """Convert as ml_dtypes does: e4m3fn has NaN beyond 464."""
    assert kind == "e4m3fn"
    return values.astype(ml_dtypes.float8_e4m3fn)


def clamped_at_448(values: Array, kind: str) -> Array:
    """Clamp e5m2 as though it were e4m3fn."""
    return encode(np.clip(values, F(-448), F(448)), kind)


def top_binade_is_448(values: Array, kind: str) -> Array:
    """Write all of 256 to 448 as 448."""
    return encode(np.where(np.abs(values) >= 256, np.copysign(F(448), values), values), kind)


def truncated(values: Array, kind: str) -> Array:
    """Round towards zero."""
    if kind == "int8":
        return encode(np.trunc(values), kind)
    near = encode(values, kind).astype(F)
    clipped = np.clip(values, F(-448), F(448))
    inward = np.nextafter(near.astype(ml_dtypes.float8_e4m3fn), ml_dtypes.float8_e4m3fn(0))
    return encode(np.where(np.abs(near) > np.abs(clipped), inward.astype(F), near), kind)


def wrapped(values: Array, kind: str) -> Array:
    """Keep the low eight bits of the integer."""
    assert kind == "int8"
    return np.nan_to_num(np.rint(values)).astype(np.int64).astype(np.int8)


def flushed(values: Array, kind: str) -> Array:
    """Write subnormal codes of e4m3fn as zero."""
    return encode(np.where(np.abs(values) < F(2.0**-6), F(0), values), kind)


def bits_of_e4m3fn(values: Array, kind: str) -> Array:
    """Write the bits of e4m3fn where e4m3fnuz is asked for."""
    assert kind == "e4m3fnuz"
    return encode(np.clip(values, F(-240), F(240)), "e4m3fn").view(np.uint8)


def negative_zero(values: Array, kind: str) -> Array:
    """Write -0 as 0x80, which is NaN in e4m3fnuz."""
    codes = encode(values, kind)
    is_negative_zero = (codes.astype(F) == 0) & np.signbit(values)
    return np.where(is_negative_zero, np.uint8(0x80), codes.view(np.uint8))


# Scales


class AmaxOfX(Kernel):
    """The scale is that of x."""

    def y(self, rows: Array, *arguments: Any) -> Array:
        self.top = np.abs(rows).max(-1, keepdims=True)
        return super().y(rows, *arguments)

    def amax(self, groups: Array) -> Array:
        del groups
        return np.asarray(self.top)


class AmaxBeforeGamma(AmaxOfX):
    """The scale is that of xhat."""

    def y(self, rows: Array, gamma: Array, beta: Array | None, eps: float, dtype: Any) -> Array:
        y = super().y(rows, gamma, beta, eps, dtype)
        root = np.sqrt((rows * rows).mean(-1, keepdims=True, dtype=F) + F(eps))
        self.top = self.top / root
        return y


def of_whole_blocks(groups: Array) -> Array:
    """Ignore the last partial block of 1024."""
    whole = groups.shape[-1] // 1024 * 1024 or groups.shape[-1]
    return np.asarray(np.abs(groups[..., :whole]).max(-1))


def of_the_tensor(groups: Array) -> Array:
    """Return the largest |y| of the whole call for each group."""
    return np.full(groups.shape[:-1], np.abs(groups).max(initial=0.0))


def over_240(amax: Array) -> Array:
    """Divide by the largest code of another type."""
    return np.where(amax == 0, F(1), amax / F(240)).astype(F)


def qmax_over_amax(y: Array, _: Array, amax: Array) -> Array:
    """Multiply by 448/amax, which overflows for a tiny amax."""
    return y * (F(448) / np.where(amax == 0, F(1), amax))


def by_the_scale_before(y: Array, scale: Array, _: Array) -> Array:
    """Scale the first element of a group by the scale of the group before."""
    values = y / scale
    values[:, 1:, 0] = y[:, 1:, 0] / scale[:, :-1, 0]
    return values


def in_groups_of_64(y: Array, _: Array, __: Array) -> Array:
    """Scale by the largest |y| of half a group."""
    halves = y.reshape(*y.shape[:2], 2, 64)
    top = np.abs(halves).max(-1, keepdims=True)
    return (halves / np.where(top == 0, F(1), top / F(448))).reshape(y.shape)


def by_columns(scale: Array) -> Array:
    """Store scales column by column."""
    return scale.T.copy().reshape(scale.shape)


def one_power_more_in_odd_groups(scale: Array) -> Array:
    """Store every other power of two one too large, but not that of infinity."""
    more = (np.arange(scale.shape[1]) % 2) * (scale < 254)
    return np.asarray(scale + more.astype(np.uint8))


def last_is_unwritten(scale: Array) -> Array:
    """Leave the scale of the last of nine groups unwritten."""
    scale = scale.copy()
    if scale.shape[1] == 9:
        scale[:, -1] = 0
    return scale


def zero_for_384_rows(scale: Array) -> Array:
    """Return zeros for one number of rows."""
    return scale * 0 if len(scale) == 384 else scale


def power_without_qmax(amax: Array) -> Array:
    """Return the exponent of amax."""
    return np.clip(np.where(amax > 0, np.frexp(amax)[1] - 1, -127), -127, 127)


def power_to_nearest(amax: Array) -> Array:
    """Round log2(amax/qmax) to nearest."""
    ratio = np.where(amax > 0, amax, F(448)).astype(float) / 448
    return np.clip(np.where(amax > 0, np.rint(np.log2(ratio)), -127), -127, 127).astype(int)


def power_by_1_75(amax: Array) -> Array:
    """Compare with 1.75, the threshold of e4m3fn, in place of the 1.5 of e2m1."""
    fractions, exponents = np.frexp(amax)
    powers = exponents - 1 - 2 + (2 * fractions >= 1.75)
    return np.clip(np.where(amax > 0, powers, -127), -127, 127)


def floor_of_log2(divisor: float) -> Any:
    """Return a step that rounds log2(amax/divisor) down."""

    def power(amax: Array) -> Array:
        positive = np.where(amax > 0, amax, F(1)).astype(float)
        powers = np.floor(np.log2(positive / divisor)).astype(int)
        return np.clip(np.where(amax > 0, powers, -127), -127, 127)

    return power


def one_power_more(amax: Array) -> Array:
    """Return the exponent above the right one."""
    powers = np.ceil(np.log2(np.where(amax > 0, amax, F(1)).astype(float) / 448)).astype(int) + 1
    return np.clip(np.where(amax > 0, powers, -127), -127, 127)


def by_transposed_powers(groups: Array, powers: Array) -> Array:
    return np.asarray(groups / np.ldexp(F(1), powers[..., 0].T.reshape(powers.shape)))


def by_scales_of_group_before(y: Array, scale: Array, _: Array) -> Array:
    """Scale a whole group by the scale of the group before."""
    return np.asarray(y / np.roll(scale, 1, axis=1))


def by_scales_of_row_before(y: Array, scale: Array, _: Array) -> Array:
    """Scale a row by the scale of the row before."""
    return np.asarray(y / np.roll(scale, 1, axis=0))


def over_128(y: Array, _: Array, amax: Array) -> Array:
    """Take 128 for the largest code of int8, in the codes alone."""
    return np.asarray(y / np.where(amax == 0, F(1), amax / F(128)))


def clamped_at_minus_128(values: Array, kind: str) -> Array:
    """Clamp to the range of int8, not to that of its codes."""
    assert kind == "int8"
    return np.asarray(np.clip(np.rint(np.nan_to_num(values)), -128, 127).astype(np.int8))


def reciprocal_of_power(groups: Array, powers: Array) -> Array:
    """Multiply by 1/scale, where the least scale is flushed to zero."""
    scale = np.where(powers > -127, np.ldexp(F(1), powers), F(0))
    return np.asarray(groups * (F(1) / scale))


def high_first(codes: Array) -> Array:
    """Put the first code of two into the high half of a byte."""
    halves = codes.view(np.uint8) & 15
    return np.asarray((halves[:, 0::2] << 4) | halves[:, 1::2])


def global_scale_inverted(amax: Array, global_scale: Array) -> Array:
    """Divide by the global scale."""
    return encode(amax / global_scale / F(6), "e4m3fn")


def block_scale_unclamped(amax: Array, global_scale: Array) -> Array:
    """Convert the block scale without saturation."""
    return (amax * F(1 / 6) * global_scale).astype(ml_dtypes.float8_e4m3fn)


def subnormal_as_normal(scale: Array, global_scale: Array) -> Array:
    """Decode a subnormal block scale as (1 + m/8)*2**-7."""
    wrong = (1 + scale * F(2.0**9) / 8) * F(2.0**-7)
    scale = np.where((scale > 0) & (scale < F(2.0**-6)), wrong, scale)
    return np.where(scale > 0, global_scale / scale, F(0)).astype(F)


# Others


class ReadsBfloat16(Kernel):
    """float32 weights are read as bfloat16: the halves of the first of them."""

    def y(self, rows: Array, gamma: Array, beta: Array | None, eps: float, dtype: Any) -> Array:
        halves = np.ascontiguousarray(gamma).view(ml_dtypes.bfloat16)[: gamma.size]
        return super().y(rows, halves, beta, eps, dtype)


class ConstantEps(Kernel):
    """eps is 1e-5, whatever is given."""

    def y(self, rows: Array, gamma: Array, beta: Array | None, eps: float, dtype: Any) -> Array:
        del eps
        return super().y(rows, gamma, beta, 1e-5, dtype)


def cut(x: Array, residual: Array) -> Array:
    """Cut the sum to bfloat16."""
    bits = (x.astype(F) + residual.astype(F)).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(F).astype(x.dtype)


PRODUCT = {"norm": "product", "via": "direct"}
PLANTED = {
    "bfloat16 skipped before the cast": Planted(STATIC, {"via": "direct"}, "recipe", "late/T"),
    "rounded to bfloat16 after scaling": Planted(STATIC, {"convert": rounded_after_scaling},
        "recipe", "late/T"),
    "no clamp": Planted(STATIC, {"convert": not_saturated}, "codes"),
    "e5m2 clamped at 448": Planted("rms_norm,quant=e5m2", {"convert": clamped_at_448}, "codes"),
    "256 to 448 written as 448": Planted(STATIC, {"convert": top_binade_is_448}, "codes"),
    "fp8 truncated": Planted(STATIC, {"convert": truncated}, "codes"),
    "int8 truncated": Planted(INT8, {"convert": truncated}, "codes"),
    "int8 wraps": Planted("rms_norm,quant=int8,nan=clamp", {"convert": wrapped}, "codes"),
    "subnormal codes flushed": Planted(STATIC, {"convert": flushed}, "codes"),
    "bits of e4m3fn for e4m3fnuz": Planted("rms_norm,quant=e4m3fnuz,scale=per-token",
        {"convert": bits_of_e4m3fn}, "codes"),
    "-0 written as 0x80": Planted("rms_norm,quant=e4m3fnuz", {"convert": negative_zero}, "codes"),
    "multiplied by the static scale": Planted(STATIC, {"scaled": lambda y, scale, _: y * scale},
        "codes"),
    "static scale left out": Planted(STATIC, {"scaled": lambda y, *_: y}, "codes"),
    "inverse of the scale returned": Planted(TOKEN, {"scales_out": lambda scale: F(1) / scale},
        "scale"),
    "0/0 in a row of zeros": Planted(TOKEN, {"scale": lambda amax: amax / F(448)}, "zeros"),
    "amax of x": Planted(TOKEN, {}, "scale", kind=AmaxOfX),
    "amax before gamma": Planted(TOKEN, {}, "scale", kind=AmaxBeforeGamma),
    "max without abs": Planted(TOKEN, {"amax": lambda groups: groups.max(-1)}, "scale"),
    "amax without the last partial block": Planted(TOKEN, {"amax": of_whole_blocks}, "scale"),
    "one scale for the tensor": Planted(TOKEN, {"amax": of_the_tensor}, "scale"),
    "240 for 448": Planted(TOKEN, {"scale": over_240}, "scale"),
    "divided by scale + 1e-5": Planted(TOKEN,
        {"scaled": lambda y, scale, _: y / (scale + F(1e-5))}, "codes"),
    "448/amax overflows": Planted(TOKEN, {"scaled": qmax_over_amax}, "codes"),
    "floor of 1e-2": Planted(TOKEN, {"scale": lambda amax: np.maximum(amax / F(448), F(1e-2))},
        "scale"),
    "NaN clamped": Planted(TOKEN, {"convert": nan_clamped, "amax": without_nan}, "special"),
    "first element by the scale before": Planted(GROUPS, {"scaled": by_the_scale_before}, "codes"),
    "scales stored by columns": Planted(GROUPS, {"scales_out": by_columns}, "scale"),
    "scales of shape (groups, rows)": Planted(GROUPS, {"scales_out": lambda scale: scale.T.copy()},
        "scale"),
    "groups of 64": Planted(GROUPS, {"scaled": in_groups_of_64}, "codes"),
    "last group unwritten at 1152": Planted(GROUPS, {"scales_out": last_is_unwritten}, "scale"),
    "returned scales twice as large": Planted(INT8, {"scales_out": lambda s: s * F(2)}, "scale"),
    "returned scales in bfloat16": Planted(TOKEN,
        {"scales_out": lambda scale: scale.astype(ml_dtypes.bfloat16).astype(F)}, "scale"),
    "returned powers one too large in odd groups": Planted(MXFP8,
        {"scales_out": one_power_more_in_odd_groups}, "scale"),
    "codes by half of the scale": Planted(MXFP8,
        {"by_power": lambda groups, powers: groups / np.ldexp(F(1), powers - 1)}, "codes"),
    "power without 448": Planted(MXFP8, {"power": power_without_qmax}, "scale"),
    "power to nearest": Planted(MXFP8, {"power": power_to_nearest}, "scale"),
    "power by 1.75 for e2m1": Planted(MXFP4, {"power": power_by_1_75}, "scale"),
    "floor of log2(amax/448)": Planted(MXFP8, {"power": floor_of_log2(448)}, "scale"),
    "floor of log2(amax/448), direct": Planted(MXFP8,
        {"power": floor_of_log2(448), "via": "direct"}, "scale"),
    "floor, an option of its own": Planted(MXFP8, {"power": floor_of_log2(256)}, "scale"),
    "exponent of e4m3fn for e2m1": Planted(MXFP4, {"power": floor_of_log2(256)}, "scale"),
    "one power too large": Planted(MXFP8, {"power": one_power_more}, "scale"),
    "codes by transposed scales": Planted(MXFP8, {"by_power": by_transposed_powers}, "codes"),
    "codes by the scales of the group before": Planted(GROUPS,
        {"scaled": by_scales_of_group_before}, "codes"),
    "codes by the scales of the row before": Planted(TOKEN, {"scaled": by_scales_of_row_before},
        "codes", dtype="float32"),
    "128 for 127": Planted(INT8,
        {"scale": lambda amax: np.where(amax == 0, F(1), amax / F(128)).astype(F)}, "scale",
        dtype="float32"),
    "128 for 127 in codes": Planted(INT8, {"scaled": over_128, "convert": clamped_at_minus_128},
        "codes", dtype="float32"),
    "block scale without 6": Planted(NVFP4,
        {**PRODUCT, "block_scale": lambda amax, scale: encode(amax * scale, "e4m3fn")}, "scale"),
    "block scales transposed": Planted(NVFP4, {**PRODUCT, "scales_out": by_columns}, "scale"),
    "E8M0 underflow": Planted(MXFP8, {"by_power": reciprocal_of_power}, "codes"),
    "nibbles exchanged": Planted(NVFP4, {**PRODUCT, "pack": high_first}, "codes"),
    "global scale inverted": Planted(NVFP4, {"block_scale": global_scale_inverted}, "scale"),
    "block scale not clamped": Planted(NVFP4, {"block_scale": block_scale_unclamped}, "scale"),
    "subnormal block scales decoded as normal": Planted(NVFP4,
        {**PRODUCT, "block_factor": subnormal_as_normal}, "codes"),
    "scales all zero for 384 rows": Planted(NVFP4, {**PRODUCT, "scales_out": zero_for_384_rows},
        "scale"),
    "float32 weights read as bfloat16": Planted("rms_norm,parameters=float32,quant=e4m3fn", {},
        "codes", kind=ReadsBfloat16),
    "amax after scaling": Planted("rms_norm,quant=e4m3fn,direction=multiply,amax=true",
        {"via": "direct", "amax_out": lambda y, scale: np.abs(y * scale).max().reshape(1)},
        "amax"),
    "residual not updated": Planted("add_rms_norm,quant=e4m3fn",
        {"added": lambda _, residual: residual}, "sum"),
    "residual truncated": Planted("add_rms_norm,quant=e4m3fn", {"added": cut}, "sum"),
    "eps is constant": Planted(TOKEN, {}, "codes", kind=ConstantEps),
}  # fmt: skip
CAUSES: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("causes.toml").read_text("utf-8")
)
"""By bug: ids of which each finding with a cause has one."""
