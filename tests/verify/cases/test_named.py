"""The file of named cases: it can be read, it is complete, and its cases are what they say."""

import tomllib
from itertools import product

import numpy as np
import pytest

from truenorm.verify.cases import named
from truenorm.verify.cases.patterns import number
from truenorm.verify.operation import Case
from truenorm.verify.operations import LAYER_NORM, OPERATIONS
from truenorm.verify.report.wording import link
from truenorm.verify.types import FORMATS, dtype_of

REPORTED = """\
pytorch#51102 pytorch#40302 pytorch#188375 pytorch#73161 pytorch#98075 pytorch#108072 pytorch#41527
pytorch#178123 pytorch#192016 pytorch#193016 pytorch#183861 pytorch#69208 pytorch#196700
pytorch#176234 pytorch#181555 onnxruntime#28463 onnxruntime#21935 onnxruntime#31973
onnxruntime#29043 onnxruntime#17692 burn#5607 burn#1992 mlx#2238 tvm#19643 flax#1491 equinox#314
DeepSpeed#581 onnx#8439 Megatron-LM#6859 tt-metal#53215 FlagGems#5392 Fast-LLM#220 apex#411
flashinfer#3391 LightLLM#1467 quack#23 tensorflow#47604 vllm#48271 numpy#9393 numpy#29772
KernelBench#165
quack#53 Liger-Kernel#950 helion#2273 trueno#178 unsloth#4550 aiter#5151 aiter#5044 unsloth#10617
quack#88 onnxruntime#29034 onnxruntime#28442 executorch#16727 IRON#139 Xilinx/mlir-air#1679
vllm#48324 vllm#45770 xla#10875 llama.cpp#2373 pytorch#155527 flash-linear-attention#508
tilelang#1243 tt-mlir#8798 flash-attention#781 nano-vllm#170 vllm#48997 vllm#28131 vllm#46658
vllm#51393
"""
"""Every failure that the judge must know, by repository and number."""


def all_cases() -> list[Case]:
    return [
        case
        for operation in OPERATIONS.values()
        for dtype in FORMATS
        for case in named.named_cases(operation, dtype)
    ]


CASES = all_cases()
ENTRIES = [entry for each in OPERATIONS.values() for entry in named.entries(each)]
NOT_CASES = [other for each in OPERATIONS.values() for other in named.not_cases(each)]
SHOWN = {source for entry in ENTRIES for source in entry["sources"]}
NOT_SHOWN = {source for other in NOT_CASES for source in other["sources"]}


def test_every_reported_failure_is_here_once_and_has_an_address() -> None:
    assert set(REPORTED.split()) <= SHOWN | NOT_SHOWN
    assert SHOWN.isdisjoint(NOT_SHOWN)
    assert all(link(source).startswith("https://") for source in SHOWN | NOT_SHOWN)


def test_entries_can_be_read() -> None:
    for entry in ENTRIES:
        assert entry["title"]
        assert entry["shows"]
        assert not entry["shows"].endswith(".")
        assert bool(entry["failed"]) == bool(entry["sources"]), entry["name"]
        assert not entry["failed"] or entry["failed"].endswith((".", ".)"))
        assert set(entry["dtypes"]) <= set(FORMATS)
    assert all(other["title"] and other["reason"] and other["sources"] for other in NOT_CASES)


def test_every_entry_is_a_case_of_each_of_its_types() -> None:
    names = [f"{kind}-{entry['name']}" for entry in ENTRIES for kind in entry["dtypes"]]
    assert sorted(names) == sorted(case.name for case in CASES)


def test_the_same_bits_each_time() -> None:
    for case, other in zip(CASES, all_cases(), strict=True):
        for name, array in case.inputs.items():
            assert np.array_equal(other.inputs[name], array, equal_nan=array is not None)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    """It has the shapes, and what it says that it needs, and nothing else."""
    rows, size = case.x.shape
    assert case.dy.shape == case.x.shape
    assert case.x.dtype == case.dy.dtype == dtype_of(case.dtype)
    absent = set()
    for name in case.operation.inputs_of("parameter"):
        parameter = case.inputs[name]
        assert parameter is None or parameter.shape == (size,)
        absent |= {f"no-{name}"} if parameter is None else set()
    once = case.part(slice(rows // case.repeats)).tiled(case.repeats)
    for name, array in case.rows.items():
        assert array.tobytes() == once.rows[name].tobytes()
    assert case.in_layout(case.x).size == case.x.size
    needs = {
        "strides": case.layout == "strided",
        "ranks": case.layout in {"one-axis", "three-axes"},
        "empty": rows == 0,
        "zero-eps": case.eps == 0,
        "tiny-eps": float(np.float32(case.eps)) != case.eps,
    }
    needed = absent | {need for need, is_so in needs.items() if is_so}
    assert case.needs - {"float32-parameters"} == needed
    assert case.eps > 0 or (case.x.max(axis=1) > case.x.min(axis=1)).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_its_numbers_are_of_its_kind(case: Case) -> None:
    arrays = [each.astype(np.float64) for each in case.inputs.values() if each is not None]
    not_finite = sum(int((~np.isfinite(each)).sum()) for each in arrays)
    assert not_finite in ((1, 2) if case.kind == "special" else (0,))
    touched = ~np.isfinite(case.x.astype(np.float64) + case.dy.astype(np.float64)).all(axis=1)
    assert touched.sum() <= len(case.x) // 2
    if case.kind == "subnormal":
        sizes = np.abs(np.stack([case.x, case.dy]).astype(np.float64))
        assert ((sizes > 0) & (sizes < number("smallest-normal", case.dtype))).mean() > 0.4


def test_literal_rows_arrive_as_written() -> None:
    cases = {case.name: case for case in CASES}
    assert cases["float32-four-consecutive-numbers"].x.tolist() == [
        [40000, 40001, 40002, 40003],
        [80000, 80001, 80002, 80003],
    ]
    assert cases["float32-mean-1449"].x[0, 2] == 1450.650390625
    assert (cases["float32-constant-1234"].x[0] == 1234).all()
    assert len(cases["float32-65549-rows"].x) == 65549
    assert cases["float16-mean-2000"].x.mean().round(-1) == 2000
    assert cases["float64-mean-2000"].x.mean().round(-1) == 2e8


def test_quick_enough_for_the_quick_level() -> None:
    """The exact answers take time in proportion to the elements that are not repeated."""
    for operation, dtype in product(OPERATIONS.values(), FORMATS):
        cases = [each for each in CASES if (each.operation, each.dtype) == (operation, dtype)]
        assert 0 < len(cases) <= 55
        assert sum(case.x.size // case.repeats for case in cases) <= 20_000


def test_a_misspelt_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[defaults]\n[[case]]\nname = "a"\nraws = 3\n[case.float32]\nsizes = 2\n'
    read = tomllib.loads(text)
    monkeypatch.setattr(named, "_read", lambda _: read)
    named._file.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"a has raws, sizes"):
            named.entries(LAYER_NORM)
    finally:
        named._file.cache_clear()


def test_an_entry_of_another_file_is_taken_without_what_is_not_there() -> None:
    """What is said again counts; inputs that the operation does not have are left out."""
    theirs, ours = (
        {entry["name"]: entry for entry in named.entries(OPERATIONS[name])}
        for name in ("layer_norm", "rms_norm")
    )
    entry = ours["subnormal-x"]
    assert entry["float16"] == theirs["subnormal-x"]["float16"]
    assert entry["shows"] != theirs["subnormal-x"]["shows"]
    assert "beta" in theirs["subnormal-x"]
    assert "beta" not in entry
