"""Quantized norms on tensors: arguments of engines, types of codes, layouts of scales."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import truenorm.verify as tv
from needs_torch import kernels, quantized
from needs_torch.quantized import Tensor
from truenorm.verify.running.pytorch import array_of
from truenorm.verify.running.torch_subject import FormName

STATIC = "rms_norm,quant=e4m3fn"
PER_TOKEN = "rms_norm,quant=e4m3fn,scale=per-token"
NVFP4 = "rms_norm,quant=nvfp4"


def subject_of(function: Any, operation: str, form: FormName = "out", **options: Any) -> Any:
    return tv.torch_subject(
        function, operation=operation, form=form, dtypes=["bfloat16"], **options
    )


RIGHT: dict[str, tuple[Any, str, FormName, dict[str, Any], str]] = {
    "static scale": (quantized.rms_norm_static_fp8_quant, STATIC, "out", {}, "late/T"),
    "scale per token": (quantized.rms_norm_dynamic_per_token_quant, PER_TOKEN, "out", {},
        "early/T"),
    "sum in place": (quantized.rms_norm_dynamic_per_token_quant, f"add_{PER_TOKEN},sum=unrounded",
        "out", {}, "early/T"),
    "group_size": (quantized.rms_norm_per_block_quant, "rms_norm,quant=e4m3fn,scale=per-128",
        "out", {}, "late/T"),
    "residual_out": (quantized.add_rmsnorm_quant,
        "add_rms_norm,quant=int8,scale=per-token,sum=unrounded", "out", {}, "late/direct"),
    "float4": (quantized.rmsnorm_fp4quant, NVFP4, "out", {}, "late/direct"),
    "swizzled scales": (quantized.rmsnorm_fp4quant, NVFP4, "out", {"unpack": tv.unswizzled},
        "late/direct"),
    "amax": (quantized.with_amax, f"{STATIC},direction=multiply,amax=true", "functional", {},
        "late/direct"),
    "transposed float8_e8m0fnu": (quantized.mxfp8, "rms_norm,quant=mxfp8", "functional", {},
        "late/T"),
    "int8": (quantized.layer_norm_int8, "layer_norm,quant=int8,nan=clamp", "functional", {},
        "late/T"),
}  # fmt: skip
"""By name: the function, the operation, the form, options, and the recipe."""


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels(name: str) -> None:
    function, operation, form, options, recipe = RIGHT[name]
    report = tv.verify(subject_of(function, operation, form, **options))
    assert report.passed, report.findings[0].symptom
    assert [each.name for each in report.recipes] == [recipe]


def unwritten_codes(result: Tensor, x: Tensor, weight: Tensor, scale: Tensor, eps: float) -> None:
    y = quantized.normalized(x, weight, eps).to(x.dtype).float()
    result[:, :-1].copy_((y / scale).round().clamp(-127, 127)[:, :-1])


def test_unwritten_codes_are_not_repeatable() -> None:
    """Every byte is an int8 code, so that one fill could be right by chance."""
    report = tv.verify(subject_of(unwritten_codes, "rms_norm,quant=int8,nan=clamp"))
    assert report.verdicts["repeatable"] == "fail"
    causes = [each.causes for each in report.findings if each.guard == "repeat"]
    assert [[one.id for one in each] for each in causes] == [["unwritten(last column)"]]


def damaged_scale(result: Tensor, x: Tensor, weight: Tensor, scale: Tensor, eps: float) -> None:
    quantized.rms_norm_static_fp8_quant(result, x, weight, scale, eps)
    scale.reciprocal_()


def stale_sum(
    out: Tensor, x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor, eps: float
) -> None:
    quantized.rms_norm_dynamic_per_token_quant(out, x, weight, scale, eps, None, residual.clone())


def as_e5m2(x: Tensor, weight: Tensor, eps: float, scale: Tensor) -> Tensor:
    y = quantized.normalized(x, weight, eps) / scale
    return y.clamp(-448, 448).to(torch.float8_e5m2)


def as_e5m2fnuz(x: Tensor, weight: Tensor, eps: float, scale: Tensor) -> Tensor:
    return as_e5m2(x, weight, eps, scale).float().to(torch.float8_e5m2fnuz)


def swizzled(x: Tensor, weight: Tensor, eps: float, global_scale: Tensor) -> Any:
    codes = torch.empty(len(x), x.shape[1] // 2, dtype=torch.uint8)
    scale = torch.empty(-(-len(x) // 128) * -(-x.shape[1] // 64) * 512, dtype=quantized.F8)
    quantized.rmsnorm_fp4quant(x, weight, codes, scale, global_scale, eps)
    return codes, scale


WRONG: dict[str, tuple[Any, str, FormName, str]] = {
    "the scale is changed": (damaged_scale, STATIC, "out", "scale changed during the call"),
    "the residual stays": (stale_sum, f"add_{PER_TOKEN},sum=unrounded", "out", r"sum\["),
    "another type": (as_e5m2, STATIC, "functional",
        "codes is float8_e5m2; it should be uint8 or float8_e4m3fn"),
    "an unknown type": (as_e5m2fnuz, STATIC, "functional", "an array of float8_e5m2fnuz"),
    "swizzled, undeclared": (swizzled, NVFP4, "functional", r"scale is shape \(1024,\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels(name: str) -> None:
    function, operation, form, message = WRONG[name]
    subject = subject_of(function, operation, form)
    case = next(each for each in tv.cases("bfloat16", operation=subject.operation))
    with pytest.raises(AssertionError, match=message):
        tv.check(subject, case)


def test_signature() -> None:
    def operator(*arguments: Any) -> None:
        quantized.rms_norm_static_fp8_quant(*arguments)

    names = "result, input, weight, scale, epsilon"
    subject = subject_of(operator, STATIC, signature=names)
    tv.check(subject, next(iter(tv.cases("bfloat16", operation=subject.operation))))


def test_scale_of_a_plain_norm_is_gamma() -> None:
    def rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
        return kernels.rms_norm(x, scale, eps)

    subject = tv.torch_subject(rms_norm, operation="rms_norm", dtypes=["float32"])
    tv.check(subject, tv.case("float32-normal-4x17", operation=tv.RMS_NORM))
    with pytest.raises(ValueError, match=re.escape("no argument for gamma (weight, gamma, w, ")):
        subject_of(rms_norm, STATIC, "functional")


class Quantizing(kernels.RMSNorm):
    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        scale = torch.empty(len(hidden_states), 1)
        codes = torch.empty(hidden_states.shape, dtype=quantized.F8)
        quantized.rms_norm_dynamic_per_token_quant(
            codes, hidden_states, self.weight, scale, self.variance_epsilon, None, None
        )
        return codes, scale


@pytest.mark.parametrize("form", ["module", "functional"])
def test_a_module_and_a_swizzled_result(form: FormName) -> None:
    if form == "module":
        subject = subject_of(Quantizing, PER_TOKEN, form)
    else:
        subject = subject_of(swizzled, NVFP4, form, unpack=tv.unswizzled)
    for case in list(tv.cases("bfloat16", operation=subject.operation))[:8]:
        tv.check(subject, case)


@pytest.mark.parametrize(("function", "operation", "options", "message"), [
    (quantized.with_amax, STATIC, {"form": "inplace"}, "give 'out', where the sum may"),
    (Quantizing, STATIC, {"form": "module"}, "form 'module' has no argument for the scale"),
    (quantized.rms_norm_static_fp8_quant, STATIC, {"unpack": tv.unswizzled},
        "unpack is for scales that are returned; RMS normalization, quantized to e4m3fn has"),
    (quantized.mxfp8, "rms_norm,quant=mxfp8", {"form": "functional", "backward": print},
        "backward must not be given: RMS normalization, quantized to mxfp8 has none"),
    (quantized.rms_norm_static_fp8_quant, PER_TOKEN.replace("rms_norm", "add_rms_norm"), {},
        "no argument for residual (residual, residual_in"),
    (quantized.mxfp8, PER_TOKEN, {}, "no argument for out (out, output, y, result, codes"),
])  # fmt: skip
def test_kernels_that_do_not_match(
    function: Any, operation: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        subject_of(function, operation, **options)


TYPES = {
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2": "float8_e5m2",
    "float8_e8m0fnu": "float8_e8m0fnu",
    "float4_e2m1fn_x2": "uint8",
    "int8": "int8",
    "uint8": "uint8",
}
"""By type of PyTorch, the type of the array."""


@pytest.mark.parametrize("name", TYPES)
def test_arrays_of_codes(name: str) -> None:
    """The bits and the strides stay."""
    codes = torch.arange(256, dtype=torch.uint8).reshape(16, 16).T
    array = array_of(codes.view(getattr(torch, name)))
    assert array.dtype.name == TYPES[name]
    assert array.strides == (1, 16)
    assert np.array_equal(array.view(np.uint8), np.arange(256).reshape(16, 16).T)


FILE = """
import torch
def quantize(result, input, weight, scale, epsilon):
    wide = input.float()
    y = wide * (1 / (wide.square().mean(-1, keepdim=True) + epsilon).sqrt()) * weight.float()
    result.copy_((y.to(input.dtype).float() * (1 / scale)).clamp(-448, 448))
def functional(x, weight, eps, scale):
    codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
    quantize(codes, x, weight, scale, eps)
    return codes
"""


@pytest.mark.parametrize("target", ["{}:quantize", "{}:functional", "torch:quantizing.quantize"])
def test_targets(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "quantizing.py"
    path.write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    subject = tv.load(target.format(path), STATIC, ["bfloat16"])
    assert subject.outputs == ("codes",)
    for case in list(tv.cases("bfloat16", operation=subject.operation))[:4]:
        tv.check(subject, case)
