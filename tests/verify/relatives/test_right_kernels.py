"""Textbook kernels in float64 pass, in every geometry and with every gate."""

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.operations import parse_operation
from truenorm.verify.operations.relatives.norm import RelativeNorm
from verify.relatives.kernels import Textbook

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


def relative(spec: str) -> RelativeNorm:
    norm = parse_operation(spec)
    assert isinstance(norm, RelativeNorm)
    assert norm.spec == spec
    return norm


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", SPECS)
def test_small_cases(spec: str, dtype: str) -> None:
    norm = relative(spec)
    subject = Textbook(norm).subject(dtype)
    suite = [
        case
        for case in tv.cases(dtype, operation=norm)
        if case.x.size <= FEW_ELEMENTS and case.family not in OF_MANY_CALLS
    ]
    assert len(suite) > 30
    for case in suite[:: 1 if dtype == "float32" else 3]:
        tv.check(subject, case)


@pytest.mark.parametrize("spec", ["group_norm,groups=2", "rms_norm,gate=silu"])
def test_whole_quick_level(spec: str) -> None:
    report = tv.verify(Textbook(relative(spec)).subject())
    assert report.passed, report.findings[0].symptom
    assert {each.grade for each in report.grades} <= {"stable", "faithful", "correct"}


def test_groups_ignored_is_a_finding() -> None:
    norm = relative("rms_norm,groups=4")

    class Ungrouped(Textbook):
        def units(self, x: np.ndarray) -> np.ndarray:
            return x.reshape(len(x), 1, -1)

    case = tv.case("float32-normal-4x67", operation=norm)
    with pytest.raises(AssertionError, match="the exact answer"):
        tv.check(Ungrouped(norm).subject(), case)
