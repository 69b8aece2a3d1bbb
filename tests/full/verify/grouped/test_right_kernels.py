"""Textbook kernels in float64 pass, in every geometry and with every gate."""

import math
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.grouped.kernels import HuggingFace, InFloat32, Textbook, few_cases
from shared.verify.grouped.planted import grouped
from truenorm.verify.grading.report import Report

SLOW = pytest.mark.slow(reason="all cases of all grouped norms take minutes")

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
    "add_rms_norm,gate=silu",
)


SHARE = 4
"""In the gate, an operation is judged by one of so many cases, each by others."""


@pytest.mark.parametrize("every", [SHARE, pytest.param(1, marks=SLOW)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", SPECS)
def test_small_cases(spec: str, dtype: str, every: int) -> None:
    norm = grouped(spec)
    assert norm.spec == spec
    also = tuple(norm.extensions)
    subject = Textbook(norm).subject(dtype, also=also)
    suite = few_cases(subject)
    assert len(suite) > 30
    first = SPECS.index(spec) + (dtype == "bfloat16")
    for case in suite[first % every :: every]:
        tv.check(subject, case)


@pytest.mark.parametrize("kernel", [Textbook, InFloat32])
@pytest.mark.parametrize("spec", [spec for spec in SPECS if "gate=" in spec])
def test_gates_of_float16(spec: str, kernel: Any) -> None:
    norm = grouped(spec)
    cases = [
        case for case in tv.cases("float16", operation=norm) if case.family.startswith("gate-")
    ]
    assert "gate-saturated" in {case.family for case in cases}
    for case in cases:
        with np.errstate(all="ignore"):
            tv.check(kernel(norm).subject("float16"), case)


def assert_passes(report: Report) -> None:
    assert report.passed, report.findings[0].symptom
    assert {each.grade for each in report.grades} <= {"stable", "faithful", "correct"}


@SLOW
@pytest.mark.parametrize(("kernel", "spec", "dtype"), [
    *((Textbook, spec, "float32") for spec in ("group_norm,groups=2", "rms_norm,gate=silu")),
    (InFloat32, "group_norm,groups=2", "bfloat16"),
    (InFloat32, "rms_norm,gate=silu", "bfloat16"),
    (HuggingFace, "rms_norm,gate=silu", "bfloat16"),
    *((InFloat32, spec, "float32") for spec in SPECS),
])  # fmt: skip
def test_whole_quick_level(kernel: Any, spec: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        assert_passes(tv.verify(kernel(grouped(spec)).subject(dtype), time=math.inf))
