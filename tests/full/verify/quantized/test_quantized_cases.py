"""The cases of each scheme and type: their number, families and widths."""

from collections import Counter

import numpy as np
import pytest

from truenorm.verify.norms.norm import Norm
from truenorm.verify.operation import Case
from truenorm.verify.operations import parse_operation

STATIC = ["e4m3fn", "e4m3fnuz", "e5m2", "int8", "e4m3fn,direction=multiply"]
DYNAMIC = [
    *("e4m3fn,scale=per-token", "int8,scale=per-token", "e5m2,scale=per-128"),
    *("e4m3fn,scale=per-48", "mxfp8", "mxfp4", "nvfp4"),
]
DTYPES = ["float16", "bfloat16", "float32"]
OF_ALL = {
    *("normal", "batch", "batch-sizes", "repeated", "row-counts", "large", "served", "rows"),
    *("row-scales", "zero-rows", "all-zero", "zero-groups", "saturating", "subnormal-codes"),
    *("outliers", "group-edges", "groups-apart", "one-nan", "one-inf", "one-minus-inf", "amax"),
}
"""Families of every scheme; those with tiny rows have a number in their name."""
ROWS = {1, 255, 256, 257, 384}


def cases_of(spec: str, dtype: str) -> tuple[Norm, list[Case]]:
    norm = parse_operation(f"rms_norm,quant={spec}")
    return norm, list(norm.cases(dtype, "quick"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spec", STATIC + DYNAMIC)
def test_cases_of_a_scheme_and_type(spec: str, dtype: str) -> None:
    norm, cases = cases_of(spec, dtype)
    quant = norm.quant
    assert 45 <= len(cases) <= 70
    assert len({case.name for case in cases}) == len(cases)
    assert sum(case.x.size for case in cases) <= 10**6
    families = Counter(case.family for case in cases)
    expected = set(OF_ALL)
    if quant.scale_type != "float32":
        expected.add("next-to-midpoints")
    if quant.direction == "divide" and (
        quant.is_static or (quant.scale == "per-token" and dtype != "float32")
    ):
        expected.add("ways")
    if quant.type == "e5m2" and quant.is_static:
        expected.add("beyond-448")
    if quant.group and quant.code.name != "e2m1":
        expected.add("partial-groups")
    assert {each for each in families if not each.startswith("tiny")} == expected
    assert sum(count for each, count in families.items() if each.startswith("tiny")) >= 3
    assert families["amax"] == 12
    assert {case.shape[0] for case in cases if case.family == "rows"} == ROWS


@pytest.mark.parametrize("spec", DYNAMIC)
def test_widths_are_multiples_of_the_group(spec: str) -> None:
    norm, cases = cases_of(spec, "bfloat16")
    group = norm.quant.group or 1
    partial = [case for case in cases if case.family == "partial-groups"]
    assert all(case.shape[1] % group == 0 for case in cases if not case.needs)
    assert [case for case in cases if case.needs] == partial
    assert all(case.needs == {"partial-groups"} and case.shape[1] % group for case in partial)
    widths = {case.shape[1] for case in cases if case.family == "normal"}
    assert max(widths) >= 8192
    assert len(widths) >= 7


@pytest.mark.parametrize("spec", ["e4m3fn", "nvfp4", "int8,scale=per-token"])
def test_cases_are_adapted_to_variants(spec: str) -> None:
    for name in ("layer_norm", "add_rms_norm,sum=unrounded", "rms_norm,gain=zero-centred"):
        norm = parse_operation(f"{name},parameters=float32,quant={spec}")
        for case in norm.cases("bfloat16", "quick"):
            assert list(case.inputs) == norm.inputs_of("data", "parameter", "setting")
            assert case.gamma.dtype == np.float32
            assert case.x.dtype.name == "bfloat16"


def test_another_seed_changes_ordinary_rows_only() -> None:
    norm, cases = cases_of("e4m3fn,scale=per-token", "bfloat16")
    others = list(norm.cases("bfloat16", "quick", seed=1))
    changed = {
        case.family
        for case, other in zip(cases, others, strict=True)
        if (case.x.view(np.uint16) != other.x.view(np.uint16)).any()
    }
    assert "normal" in changed
    assert not changed & {"ways", "amax", "all-zero"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_static_scale_uses_the_range_of_codes(dtype: str) -> None:
    _, cases = cases_of("e4m3fn", dtype)
    for case in cases:
        if case.family == "normal":
            x = case.x.astype(np.float64)
            y = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + case.eps) * case.gamma
            largest = np.abs(y.astype(np.float64)).max() / float(case.scale[0])
            assert 448 / 2 <= largest <= 448 * 2
