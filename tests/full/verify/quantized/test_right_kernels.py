"""Right kernels pass; their recipe, their way to scale and their least scale are named."""

import math
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from shared.choosing import few
from shared.verify.quantized.engines import AITER_TRITON, ENGINES, LEAST, at_least, floored
from shared.verify.quantized.kernels import Array, F, Kernel, judge, quantized_norm

RIGHT: dict[str, tuple[dict[str, Any], str, str]] = {
    "rms_norm,quant=e4m3fn": ({}, "late/T", "divide"),
    "rms_norm,quant=e4m3fn,scale=per-token": ({}, "late/T", "divide"),
    "rms_norm,quant=int8,scale=per-token": (
        # Without a least scale, its reciprocal would overflow.
        {"way": "reciprocal", "scale": floored(127, 2.0**-23)},
        "late/T",
        "reciprocal",
    ),
    "rms_norm,quant=e5m2": ({"via": "direct"}, "late/direct", ""),
    "rms_norm,quant=e4m3fnuz,scale=per-token": ({"way": "qmax/amax", "amax": at_least(1e-6)},
        "late/T", "qmax/amax"),
    "rms_norm,quant=e4m3fn,scale=per-128": ({"norm": "early"}, "early/T", ""),
    "rms_norm,quant=mxfp8": ({}, "late/T", ""),
    "rms_norm,quant=mxfp4": ({}, "late/T", ""),
    "rms_norm,quant=nvfp4": ({"norm": "product", "via": "direct"}, "product/direct", ""),
    "rms_norm,quant=e4m3fn,direction=multiply,amax=true": ({"via": "direct"}, "late/direct", ""),
    "layer_norm,quant=e4m3fn": ({"way": "reciprocal"}, "late/T", "reciprocal"),
    "add_rms_norm,sum=unrounded,quant=e4m3fn,scale=per-token": ({}, "late/T", "divide"),
}  # fmt: skip
"""By operation: how the kernel rounds, and the recipe and the way that are to be named."""


@pytest.mark.parametrize("operation", few(RIGHT, reason="a verdict takes seconds"))
def test_passes_with_its_recipe(operation: str) -> None:
    how, recipe, way = RIGHT[operation]
    report = judge(Kernel(quantized_norm(operation), **how).subject())
    assert report.passed, report.findings[0].symptom
    assert [(each.name, each.way) for each in report.recipes] == [(recipe, way)]
    assert report.recipes[0].shares[recipe] == 1


@pytest.mark.slow(reason="all cases of all quantized norms take minutes")
@pytest.mark.parametrize(
    "operation", ["rms_norm,quant=e4m3fn", "rms_norm,quant=e4m3fn,scale=per-128"]
)
def test_large_calls_pass(operation: str) -> None:
    report = tv.verify(Kernel(quantized_norm(operation)).subject(), time=math.inf)
    assert report.passed, report.findings[0].symptom
    assert report.verdicts["large calls"] == "pass"


@pytest.mark.parametrize("name", few(ENGINES, reason="a verdict takes seconds"))
def test_kernel_of_an_engine_passes(name: str) -> None:
    engine = ENGINES[name]
    report = judge(engine.kernel.subject(), calls=False)
    assert report.passed, report.findings[0].symptom
    assert [(each.name, each.way) for each in report.recipes] == [(engine.recipe, engine.way)]
    (quantization,) = report.quantization
    assert quantization.floor == (engine.floor or "none")
    assert quantization.exact_codes > 0.95
    assert 0.999 < quantization.noise < 1.04


def test_reciprocal_of_a_tiny_scale_overflows() -> None:
    """The int8 kernel of aiter is right but for amax below 4e-37, as 1/scale is infinite there."""
    report = judge(AITER_TRITON.kernel.subject(), calls=False)
    (finding,) = report.findings
    assert (finding.output, finding.families) == ("codes", ("tiny-4e-38",))
    assert [each.name for each in report.recipes] == [AITER_TRITON.recipe]
    assert [(each.floor, each.zeros) for each in report.quantization] == [("none", "1")]


@pytest.mark.parametrize(("steps", "rule"), [
    ({}, "amax/qmax"),
    ({"scale": lambda amax: amax * F(1 / 240)}, "amax*[1/qmax]"),
    ({"via": "direct"}, ""),
])  # fmt: skip
def test_names_the_rule_of_the_scale(steps: dict[str, Any], rule: str) -> None:
    norm = quantized_norm("rms_norm,quant=e4m3fnuz,scale=per-token")
    (quantization,) = judge(Kernel(norm, **steps).subject(), calls=False).quantization
    assert quantization.scale == rule


def test_another_floor_than_the_declared_one_is_a_finding() -> None:
    declared = quantized_norm("rms_norm,quant=e4m3fn,scale=per-token,floor=1/(qmax*512)")
    report = judge(Kernel(declared, scale=floored(448, LEAST)).subject(), calls=False)
    assert report.passed, report.findings[0].symptom
    assert [each.floor for each in report.quantization] == ["1/(qmax*512)"]
    for step in ({}, {"scale": floored(448, 2.0**-23)}):
        report = judge(Kernel(declared, **step).subject(), calls=False)
        assert "scale" in {each.output for each in report.findings}


SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
OF_INT8 = quantized_norm("rms_norm,quant=int8,scale=per-token")


def for_zeros(least: float) -> Any:
    """Return a step that computes a scale, with a number for zeros alone."""
    return lambda amax: np.where(amax == 0, F(least), amax / F(127)).astype(F)


@pytest.mark.parametrize("least", [SMALLEST_NORMAL, 1e-30, 3e-12])
def test_any_small_number_may_be_the_least_scale(least: float) -> None:
    report = judge(Kernel(OF_INT8, scale=floored(127, least)).subject(), calls=False)
    assert report.passed, report.findings[0].symptom
    text = f"{least:.6g}"
    assert [(each.floor, each.zeros) for each in report.quantization] == [(text, text)]
    report = judge(Kernel(OF_INT8, scale=for_zeros(least)).subject(), calls=False)
    assert report.passed, report.findings[0].symptom
    assert [(each.floor, each.zeros) for each in report.quantization] == [("none", text)]


def by_own_scale(y: Array, _: Array, amax: Array) -> Array:
    """Divide y by the scale that its group has without a floor."""
    return np.asarray(y / for_zeros(1)(amax))


WRONG_FLOORS: dict[str, tuple[dict[str, Any], str]] = {
    "codes without the floor": ({"scale": floored(127, 3e-12), "scaled": by_own_scale}, "codes"),
    "codes without the smallest normal number": (
        {"scale": floored(127, SMALLEST_NORMAL), "scaled": by_own_scale},
        "codes",
    ),
    "scales without the floor": (
        {"scale": for_zeros(3e-12), "scaled": lambda y, scale, _: y / np.maximum(scale, F(3e-12))},
        "codes",
    ),
    "a floor that is added": ({"scale": lambda amax: amax / F(127) + F(3e-12)}, "scale"),
    # Codes of rows of ordinary size would have few bits.
    "a large floor": ({"scale": floored(127, 1e-3)}, "scale"),
    "a floor that depends on the row": (
        {
            "scale": lambda amax: np.maximum(
                amax / F(127), np.where(amax > 1e-25, F(6e-12), F(3e-12))
            )
        },
        "scale",
    ),
}
"""By what is wrong: the steps of the kernel, and the output that is."""


@pytest.mark.parametrize("name", WRONG_FLOORS)
def test_a_wrong_use_of_the_least_scale_is_found(name: str) -> None:
    steps, output = WRONG_FLOORS[name]
    with np.errstate(all="ignore"):
        report = judge(Kernel(OF_INT8, **steps).subject(), calls=False)
    assert [each.output for each in report.findings] == [output]


@pytest.mark.parametrize("recipe", ["late/T", "late/T, divide"])
@pytest.mark.parametrize("name", ["bfloat16-normal-64x2", "bfloat16-normal-64x512"])
def test_one_case_does_not_refute_what_it_cannot_show(name: str, recipe: str) -> None:
    norm = quantized_norm("rms_norm,quant=e4m3fn")
    tv.check(Kernel(norm).subject(), tv.case(name, operation=norm), recipe=recipe)


def test_one_case_refutes_another_recipe() -> None:
    norm = quantized_norm("rms_norm,quant=e4m3fn")
    case = tv.case("bfloat16-normal-64x512", operation=norm)
    with pytest.raises(AssertionError, match="not rounded as late/direct requires"):
        tv.check(Kernel(norm).subject(), case, recipe="late/direct")
    with pytest.raises(AssertionError, match="not rounded as late/T, scaled too requires"):
        tv.check(Kernel(norm).subject(), case, recipe="late/T, scaled too")


def test_codes_of_int8_may_be_bytes() -> None:
    norm = quantized_norm("rms_norm,quant=int8")
    kernel = Kernel(norm, pack=lambda codes: codes.view("uint8"))
    tv.check(kernel.subject(), tv.case("bfloat16-normal-64x512", operation=norm))
