"""Textbook kernels in float64 pass, in every geometry and with every gate."""

from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from verify.relatives.kernels import HuggingFace, InFloat32, Textbook
from verify.relatives.planted import relative

SPECS = (
    "rms_norm,groups=4",
    "layer_norm,groups=2",
    "group_norm,groups=2",
    "group_norm,groups=3,gate=self",
    "instance_norm",
    "rms_norm,heads=4",
    "rms_norm,over=channels",
    "rms_norm,gate=silu",
    "rms_norm,gate=sigmoid",
    "rms_norm,groups=2,gate=silu-first",
    "rms_norm,groups=2,gate=sigmoid-first",
    "rms_norm,gate=self",
    "layer_norm,modulate=sample,gamma=false",
    "rms_norm,modulate=row",
    "rms_norm,variance=3/4",
    "rms_norm,divisor=sum,gamma=false",
    "add_rms_norm,gate=silu",
)
FEW_ELEMENTS = 2000
OF_MANY_CALLS = ("batch", "batch-sizes", "repeated", "row-counts", "large", "many-rows")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", SPECS)
def test_small_cases(spec: str, dtype: str) -> None:
    norm = relative(spec)
    assert norm.spec == spec
    also = tuple(norm.extensions)
    subject = Textbook(norm).subject(dtype, also=also)
    suite = [
        case
        for case in tv.cases(dtype, operation=norm, also=also)
        if case.x.size <= FEW_ELEMENTS and case.family not in OF_MANY_CALLS
    ]
    assert len(suite) > 30
    for case in suite[:: 1 if dtype == "float32" else 3]:
        tv.check(subject, case)


@pytest.mark.parametrize(
    ("kernel", "spec", "dtype"),
    [
        (Textbook, "group_norm,groups=2", "float32"),
        (Textbook, "rms_norm,gate=silu", "float32"),
        pytest.param(InFloat32, "group_norm,groups=2", "bfloat16", marks=pytest.mark.slow),
        pytest.param(InFloat32, "rms_norm,gate=silu", "bfloat16", marks=pytest.mark.slow),
        (HuggingFace, "rms_norm,gate=silu", "bfloat16"),
        *(
            pytest.param(InFloat32, spec, "float32", marks=pytest.mark.slow)
            for spec in ("group_norm,groups=2", "rms_norm,gate=silu", *SPECS)
        ),
    ],
)
def test_whole_quick_level(kernel: Any, spec: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        report = tv.verify(kernel(relative(spec)).subject(dtype))
    assert report.passed, report.findings[0].symptom
    assert {each.grade for each in report.grades} <= {"stable", "faithful", "correct"}
