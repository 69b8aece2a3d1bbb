"""The file of named cases: it can be read, it is complete, and its cases are what they say."""

import re
import tomllib

import numpy as np
import pytest

from truenorm.verify.cases import named
from truenorm.verify.cases.patterns import number
from truenorm.verify.operation import KINDS, LAYOUTS, Case
from truenorm.verify.operations.layer_norm import EXTENSIONS, LAYER_NORM
from truenorm.verify.pages.sources import link
from truenorm.verify.types import FORMATS, dtype_of

NUMBERS = {
    "pytorch": (
        "51102 40302 188375 73161 98075 108072 41527 178123 192016 193016 "
        "183861 69208 196700 176234 181555"
    ),
    "onnxruntime": "28463 21935 31973 29043 17692",
    "burn": "5607 1992",
    "mlx": "2238",
    "tvm": "19643",
    "flax": "1491",
    "equinox": "314",
    "DeepSpeed": "581",
    "onnx": "8439",
    "Megatron-LM": "6859",
    "tt-metal": "53215",
    "FlagGems": "5392",
    "Fast-LLM": "220",
    "apex": "411",
    "flashinfer": "3391",
    "LightLLM": "1467",
    "quack": "23",
    "tensorflow": "47604",
    "vllm": "48271",
    "numpy": "9393 29772",
    "KernelBench": "165",
}
"""Every failure that the judge must know, by repository."""
REPORTED = [f"{name}#{issue}" for name, issues in NUMBERS.items() for issue in issues.split()]

CASES = [case for dtype in FORMATS for case in named.named_cases(LAYER_NORM, dtype)]
ENTRIES = named.entries(LAYER_NORM)
NOT_CASES = named.not_cases(LAYER_NORM)
SHOWN = {source for entry in ENTRIES for source in entry.sources}
NOT_SHOWN = {source for other in NOT_CASES for source in other.sources}


@pytest.mark.parametrize("source", REPORTED)
def test_every_reported_failure_is_here(source: str) -> None:
    assert source in SHOWN | NOT_SHOWN


def test_nothing_is_both_a_case_and_none() -> None:
    assert SHOWN.isdisjoint(NOT_SHOWN)


def test_every_source_has_an_address() -> None:
    assert all(link(source).startswith("https://") for source in SHOWN | NOT_SHOWN)


def test_entries_can_be_read() -> None:
    for entry in ENTRIES:
        assert entry.title
        assert entry.shows
        assert not entry.shows.endswith(".")
        assert bool(entry.failed) == bool(entry.sources), entry.slug
        assert not entry.failed or entry.failed.endswith((".", ".)"))
        assert set(entry.dtypes) <= set(FORMATS)
    assert all(other.title and other.reason and other.sources for other in NOT_CASES)


def test_names_are_unique_and_plain() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[A-Za-z0-9.+-]+", name) for name in names)
    assert sorted(f"{kind}-{entry.slug}" for entry in ENTRIES for kind in entry.dtypes) == sorted(
        names
    )


def test_the_same_bits_each_time() -> None:
    again = [case for dtype in FORMATS for case in named.named_cases(LAYER_NORM, dtype)]
    for case, other in zip(CASES, again, strict=True):
        for name, array in case.inputs.items():
            assert np.array_equal(other.inputs[name], array, equal_nan=array is not None)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    rows, size = case.x.shape
    assert case.dy.shape == case.x.shape
    assert case.x.dtype == case.dy.dtype == dtype_of(case.dtype)
    for parameter in (case.gamma, case.beta):
        assert parameter is None or parameter.shape == (size,)
    assert case.kind in KINDS
    assert case.needs <= EXTENSIONS.keys()
    assert rows % case.repeats == 0
    period = rows // case.repeats
    assert (case.x.tobytes(), case.dy.tobytes()) == (
        case.x[:period].tobytes() * case.repeats,
        case.dy[:period].tobytes() * case.repeats,
    )
    assert case.laid_out(case.x).size == case.x.size


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_case_says_what_it_needs(case: Case) -> None:
    assert (case.gamma is None) == ("no-gamma" in case.needs)
    assert (case.beta is None) == ("no-beta" in case.needs)
    assert (case.layout == "strided") == ("strides" in case.needs)
    assert (case.layout in {"one-axis", "three-axes"}) == ("ranks" in case.needs)
    assert case.layout in LAYOUTS
    assert (len(case.x) == 0) == ("empty" in case.needs)
    assert (case.eps == 0) == ("zero-eps" in case.needs)
    assert (float(np.float32(case.eps)) != case.eps) == ("tiny-eps" in case.needs)
    assert case.eps >= 0
    if case.eps == 0:
        assert (case.x.max(axis=1) > case.x.min(axis=1)).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_only_special_cases_are_not_finite(case: Case) -> None:
    arrays = [each.astype(np.float64) for each in case.inputs.values() if each is not None]
    not_finite = sum(int((~np.isfinite(each)).sum()) for each in arrays)
    if case.kind != "special":
        assert not_finite == 0
    else:
        assert 1 <= not_finite <= 2
        touched = ~np.isfinite(case.x.astype(np.float64) + case.dy.astype(np.float64)).all(axis=1)
        assert touched.sum() <= len(case.x) // 2


@pytest.mark.parametrize("case", CASES, ids=str)
def test_subnormal_cases_hold_subnormal_numbers(case: Case) -> None:
    least = number("smallest-normal", case.dtype)
    sizes = np.abs(np.stack([case.x, case.dy]).astype(np.float64))
    if case.kind == "subnormal":
        assert ((sizes > 0) & (sizes < least)).mean() > 0.4


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
    for dtype in FORMATS:
        cases = [case for case in CASES if case.dtype == dtype]
        assert len(cases) <= 55
        assert sum(case.x.size // case.repeats for case in cases) <= 20_000


def test_a_misspelt_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[defaults]\n[[case]]\nname = "a"\nraws = 3\n[case.float32]\nsizes = 2\n'
    read = tomllib.loads(text)
    monkeypatch.setattr(tomllib, "loads", lambda _: read)
    named._file.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"a has raws, sizes"):
            named.entries(LAYER_NORM)
    finally:
        named._file.cache_clear()
