"""Cases: patterns, named cases, families and seeds."""

import itertools
import tomllib
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.grading.domain import split_by_domain
from truenorm.verify.inputs import named
from truenorm.verify.inputs.families import (
    LARGE_VALUES,
    RANDOM_WIDTHS,
    WIDTHS,
    ordinary,
    random_widths,
)
from truenorm.verify.inputs.patterns import PATTERNS, Pattern, filled, number
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.options import NAMES
from truenorm.verify.operation import MODEL_INPUT, Case
from truenorm.verify.operations import LAYER_NORM, OPERATIONS
from truenorm.verify.report.wording import link
from truenorm.verify.suite import LEVELS
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, ulps_of

SLOW = pytest.mark.slow(reason="all cases of the full level take a minute")

OPTIONS: dict[str, dict[str, Any]] = {
    "alternating": {"high": 5, "ripple": 0.1},
    "cancelling": {"scale": 100},
    "constant": {"value": 3},
    "decades": {"reach": 6},
    "integers": {"limit": 9},
    "next-to-ties": {"eps": "0x1p-17"},
    "one-ulp-off": {"value": 1234},
    "outlier": {"outlier": 50},
    "signs": {"value": 7},
    "values": {"values": [1, -2, "0x1p+3", 4, 0.5, 6, 7]},
}
X = np.linspace(-3, 5, 28, dtype=np.float32).reshape(4, 7)


def filled_with(name: str, dtype: str = "float64", shape: tuple[int, ...] = (4, 7)) -> Array:
    return filled({"pattern": name, **OPTIONS.get(name, {})}, dtype, shape, "test", x=X)


def wide(array: Array) -> Float64s:
    result: Float64s = array.astype(np.float64)
    return result


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("name", PATTERNS)
def test_shape_type_and_bits(name: str, dtype: str) -> None:
    array = filled_with(name, dtype)
    assert array.shape == (4, 7)
    assert array.dtype == dtype_of(dtype)
    assert np.isfinite(wide(array)).all()
    assert array.tobytes() == filled_with(name, dtype).tobytes()
    if name != "proportional":
        assert filled_with(name, dtype, (0, 7)).shape == (0, 7)
        assert filled_with(name, dtype, (7,)).shape == (7,)


def test_noise_depends_on_the_seed_alone() -> None:
    """A case's name says all: the bits must not change with a version of this package."""
    assert zlib.crc32(filled("normal", "float32", (3, 5), "pinned").tobytes()) == 0x15B10AFE
    arrays = [filled("normal", "float32", (2, 3), seed) for seed in ("a", "b", [1, 2], [1, 3])]
    assert len({array.tobytes() for array in arrays}) == 4


@pytest.mark.parametrize("dtype", FORMATS)
def test_numbers_by_name(dtype: str) -> None:
    kind = dtype_of(dtype)
    largest = np.array(number("max", dtype), kind)
    assert np.isfinite(wide(largest))
    with np.errstate(over="ignore"):
        assert np.isinf(np.nextafter(largest, np.array(np.inf, kind)))
    assert number("smallest", dtype) == ulps_of(np.zeros(()), dtype)
    least = np.array(number("smallest-normal", dtype))
    assert ulps_of(least, dtype) == number("smallest", dtype)
    assert ulps_of(2 * least, dtype) == 2 * number("smallest", dtype)
    assert number("-0x1p-3", dtype) == -0.125
    assert number("-inf", dtype) == -np.inf


def test_noise_has_its_mean_and_deviation() -> None:
    pattern = {"pattern": "normal", "offset": [0, 1000], "scale": [1, "0x1p-3"]}
    x = filled(pattern, "float64", (2, 10_000), "test")
    assert (np.abs(x.mean(axis=1) - [0, 1000]) <= [0.05, 0.01]).all()
    assert (np.abs(x.std(axis=1) / [1, 0.125] - 1) <= 0.05).all()
    x = filled({"pattern": "normal", "scale": "max"}, "float16", (1, 100), "test")
    assert np.abs(x).max() == 65504


SIGNS = np.where(np.arange(7) % 2, -1, 1)
SPREAD = np.arange(-3, 4)
PROPERTIES: dict[str, Callable[[Float64s], Any]] = {
    "sorted": lambda rows: np.diff(rows, axis=1) >= 0,
    "multiples": lambda rows: rows[1:] == rows[0] * np.array([[-1], [2], [1]]),
    "values": lambda rows: rows == [1, -2, 8, 4, 0.5, 6, 7],
    "constant": lambda rows: rows == 3,
    "ones": lambda rows: rows == 1,
    "zeros": lambda rows: rows == 0,
    "outlier": lambda rows: (rows == 50).sum(axis=1) == 1,
    "alternating": lambda rows: np.sign(rows) == SIGNS,
    "alternating-signs": lambda rows: rows == SIGNS,
    "decades": lambda rows: (
        np.abs(np.sort(np.log10(np.abs(rows)), axis=1) - SPREAD) <= 1.5 * np.log10(2)
    ),
    "one-hot": lambda rows: np.sort(rows, axis=1) == [0, 0, 0, 0, 0, 0, 1],
    "positive": lambda rows: (rows >= 0.5) & (rows < 1),
    "signs": lambda rows: sorted(set(rows.ravel().tolist())) == [-7, 7],
    "integers": lambda rows: (rows == np.rint(rows)) & (np.abs(rows) <= 9) & (np.ptp(rows) > 9),
    "ramp": lambda rows: rows == np.arange(7),
    "one-zero": lambda rows: (rows == 0) == (np.arange(7) == 0),
    "random": lambda rows: np.ptp(np.sign(rows)) == 2,
    "large": lambda rows: np.abs(rows).mean() > 500,
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_pattern_has_its_property(name: str) -> None:
    assert np.all(PROPERTIES[name](filled_with(name)))


def test_a_list_gives_one_number_to_each_row() -> None:
    x = filled({"pattern": "ramp", "start": [0, 100], "step": 0.5}, "float32", (2, 3), "test")
    assert x.tolist() == [[0, 0.5, 1], [100, 100.5, 101]]
    rows = filled({"pattern": "values", "values": [["0x1p+0"], [2]]}, "float32", (3, 1), "test")
    assert rows.tolist() == [[1], [2], [1]]


@pytest.mark.parametrize(("pattern", "message"), [
    ({"pattern": "values", "values": [1]}, "rows of 2; got 1"),
    ("proportional", "needs x"),
    ("guess", "pattern must be one of normal, .*; got 'guess'"),
])  # fmt: skip
def test_an_invalid_pattern_is_an_error(pattern: Pattern, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        filled(pattern, "float32", (1, 2), "test")


@pytest.mark.parametrize("dtype", FORMATS)
def test_one_element_is_one_ulp_off(dtype: str) -> None:
    x = wide(filled_with("one-ulp-off", dtype))
    steps = (x - x.min()) / ulps_of(np.array(x.min()), dtype)
    assert (np.sort(steps, axis=1) == [0, 0, 0, 0, 0, 0, 1]).all()


@pytest.mark.parametrize("size", [1, 2, 6, 7])
def test_pairs_cancel(size: int) -> None:
    rows = filled({"pattern": "cancelling", "scale": 1e9}, "float32", (3, size), "test")
    assert [sum(map(int, np.ldexp(wide(row), 100))) for row in rows] == [1 << 100] * 3


def test_proportional_to_x_by_a_power_of_two() -> None:
    factors = filled_with("proportional") / X
    assert (factors == factors[:, :1]).all()
    assert (np.frexp(factors)[0] == 0.5).all()
    assert np.abs(filled_with("proportional")).max() <= 1


@pytest.mark.parametrize("dtype", FORMATS)
def test_tiny_parameters_are_normal_numbers(dtype: str) -> None:
    tiny = np.abs(wide(filled_with("tiny", dtype)))
    assert (tiny >= number("smallest-normal", dtype)).all()
    assert tiny.max() < 0.1


def test_elements_are_clipped() -> None:
    x = filled({"pattern": "normal", "scale": 9, "clip": 10}, "float32", (3, 50), "test")
    assert np.abs(x).max() == 10
    assert (np.abs(x) < 10).any()


def test_put_comes_last() -> None:
    put = [[0, 1, "nan"], [1, 0, "-inf"], [1, 1, "max"]]
    x = filled({"pattern": "zeros", "put": put}, "float16", (2, 2), "test")
    assert np.array_equal(x, np.array([[0, np.nan], [-np.inf, 65504]]), equal_nan=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_next_to_ties(dtype: str) -> None:
    """In each row an element of xhat is next to a middle; the mean is 0."""
    x = wide(filled({"pattern": "next-to-ties", "eps": "0x1p-17"}, dtype, (12, 131), "ties"))
    assert (x.sum(axis=1) == 0).all()
    xhat = np.abs(x) / np.sqrt((x * x).mean(axis=1, keepdims=True) + 2.0**-17)
    places = xhat / ulps_of(xhat, dtype)
    off = np.abs(places - np.floor(places) - 0.5) * ulps_of(xhat, dtype)
    assert (off.min(axis=1) < 2.0**-24).all()
    assert np.median(off.min(axis=1)) < 2.0**-27


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


@cache
def made_cases() -> list[Case]:
    """Return the named cases; tests do not change them."""
    return [
        case
        for operation in OPERATIONS.values()
        for dtype in FORMATS
        for case in named.named_cases(operation, dtype)
    ]


ENTRIES = [entry for each in OPERATIONS.values() for entry in named.entries(each)]
NOT_CASES = [other for each in OPERATIONS.values() for other in named.not_cases(each)]
SHOWN = {source for entry in ENTRIES for source in entry["sources"]}
NOT_SHOWN = {source for other in NOT_CASES for source in other["sources"]}


def test_every_reported_failure_is_here_once_and_has_an_address() -> None:
    assert set(REPORTED.split()) <= SHOWN | NOT_SHOWN
    assert SHOWN.isdisjoint(NOT_SHOWN)
    assert all(link(source).startswith("https://") for source in SHOWN | NOT_SHOWN)


def test_every_entry_is_a_case_of_each_of_its_types() -> None:
    names = [f"{kind}-{entry['name']}" for entry in ENTRIES for kind in entry["dtypes"]]
    assert sorted(names) == sorted(case.name for case in made_cases())


def test_shapes_and_needs() -> None:
    """Each case has the shapes, and what it says that it needs, and nothing else."""
    for case in made_cases():
        assert_shapes_and_needs(case)


def assert_shapes_and_needs(case: Case) -> None:
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
    assert case.needs - {"float32-parameters"} == needed, case.name
    assert case.eps > 0 or (case.x.max(axis=1) > case.x.min(axis=1)).all()


def test_numbers_are_of_their_kind() -> None:
    for case in made_cases():
        arrays = [each.astype(np.float64) for each in case.inputs.values() if each is not None]
        not_finite = sum(int((~np.isfinite(each)).sum()) for each in arrays)
        assert not_finite in ((1, 2) if case.kind == "special" else (0,)), case.name
        touched = ~np.isfinite(case.x.astype(np.float64) + case.dy.astype(np.float64)).all(axis=1)
        assert touched.sum() <= len(case.x) // 2, case.name
        if case.kind == "subnormal":
            sizes = np.abs(np.stack([case.x, case.dy]).astype(np.float64))
            small = (sizes > 0) & (sizes < number("smallest-normal", case.dtype))
            assert small.mean() > 0.4, case.name


def test_quick_enough_for_the_quick_level() -> None:
    """The exact answers take time in proportion to the elements that are not repeated."""
    for operation, dtype in product(OPERATIONS.values(), FORMATS):
        cases = [
            each for each in made_cases() if (each.operation, each.dtype) == (operation, dtype)
        ]
        assert 0 < len(cases) <= 55
        assert sum(case.x.size // case.repeats for case in cases) <= 20_000


def test_a_misspelt_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[defaults]\n[[case]]\nname = "a"\nraws = 3\n[case.float32]\nsizes = 2\n'
    read = tomllib.loads(text)
    monkeypatch.setattr(named, "_read", lambda _: read)
    named._file.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"a has unknown raws, sizes"):
            named.entries(LAYER_NORM)
    finally:
        named._file.cache_clear()


def test_an_entry_of_another_file_is_reused_without_absent_inputs() -> None:
    """Repeated settings override; inputs that the operation lacks are left out."""
    theirs, ours = (
        {entry["name"]: entry for entry in named.entries(OPERATIONS[name])}
        for name in ("layer_norm", "rms_norm")
    )
    entry = ours["subnormal-x"]
    assert entry["float16"] == theirs["subnormal-x"]["float16"]
    assert entry["shows"] != theirs["subnormal-x"]["shows"]
    assert "beta" in theirs["subnormal-x"]
    assert "beta" not in entry


@pytest.mark.parametrize("level", ["quick", pytest.param("full", marks=SLOW)])
@pytest.mark.parametrize("dtype", FORMATS)
def test_names_are_unique_and_lead_back_to_the_case(dtype: str, level: str) -> None:
    also = list(tv.EXTENSIONS)
    found = tv.cases(dtype, level, also)
    assert max(Counter(map(str, found)).values()) == 1
    assert {need for each in found for need in each.needs} <= set(also)
    assert all(not each.needs for each in tv.cases(dtype, level))
    for each in found[:: len(found) // 7]:
        again = tv.case(each.name)
        assert again.x.tobytes() == each.x.tobytes()
        assert again.eps == each.eps
    assert all(each.why for each in found)


@pytest.mark.parametrize("level", ["quick", pytest.param("full", marks=SLOW)])
def test_the_default_scope_has_an_eps_that_float32_has(level: str) -> None:
    for dtype in FORMATS:
        for each in tv.cases(dtype, level):
            assert each.eps == float(np.float32(each.eps)) > 0
            assert each.gamma is not None
            assert each.beta is not None


def test_ordinary_input_is_not_degenerate() -> None:
    """Neither gamma nor dy is constant, and no width is a power of two alone."""
    ordinary = [each for each in tv.cases("float32") if each.kind == "ordinary"]
    assert {2, 3, 67, 1025} < {each.x.shape[1] for each in ordinary}
    assert max(len(each.x) for each in ordinary) > 65_536
    for each in ordinary:
        assert each.gamma is not None
        assert np.ptp(each.gamma) > 0
        assert np.ptp(each.dy) > 0
        assert abs(float(each.dy.mean())) > 0.05


@pytest.mark.parametrize("norm", [*map(tv.norm, NAMES)], ids=NAMES)
@pytest.mark.parametrize("dtype", FORMATS)
def test_ordinary_input_reaches_the_largest_x_of_the_domain(norm: Norm, dtype: str) -> None:
    """A report says |x| <= 1e4: a kernel that clamps x below that must fail."""
    large = [each for each in tv.cases(dtype, operation=norm) if each.family == LARGE_VALUES]
    assert {each.kind for each in large} == {"ordinary"}
    assert split_by_domain(large, MODEL_INPUT) == (large, [])
    sizes = np.concatenate([np.abs(norm.normalized(each)).max(axis=1) for each in large])
    assert 9984 <= sizes.max() <= MODEL_INPUT.largest  # bfloat16 has no 1e4
    for low, high in itertools.pairwise((60, 255, 1000, 3000, 9900)):
        assert ((sizes > low) & (sizes <= high)).any(), (low, high)


def test_random_widths_depend_on_the_seed() -> None:
    """The same each time, other ones for each seed and type, and none that the list has."""
    for dtype in FORMATS:
        assert list(random_widths(dtype, 0)) == list(random_widths(dtype, 0))
    drawn = [set(random_widths(dtype, seed)) for dtype in FORMATS for seed in range(3)]
    assert all(len(each) == len(RANDOM_WIDTHS) for each in drawn)
    assert all(one != other for one, other in itertools.combinations(drawn, 2))
    listed = {width for each in WIDTHS.values() for width in each}
    assert all(each.isdisjoint(listed) for each in drawn)
    quick, full = ({each.x.shape[1] for each in tv.cases("float32", k)} for k in LEVELS)
    assert drawn[2 * 3] <= quick
    assert drawn[2 * 3] | drawn[2 * 3 + 1] | drawn[2 * 3 + 2] <= full


def test_a_sweep_reaches_the_limit_of_the_type() -> None:
    for dtype, top in {"float16": 1e3, "bfloat16": 1e2, "float32": 1e7, "float64": 1e15}.items():
        offsets = [abs(float(c.x.mean())) for c in tv.cases(dtype) if c.kind == "sweep"]
        assert max(offsets) > 0.9 * top


def _bits(case: tv.Case) -> bytes:
    return b"".join(each.tobytes() for each in case.inputs.values() if each is not None)


def test_another_seed_gives_other_numbers_of_the_same_kinds() -> None:
    """But for named cases and those next to midpoints, whose numbers are chosen."""
    today = {each.name: each for each in tv.cases("float16")}
    seeded = tv.cases("float16", seed=12345)
    assert len(seeded) == len(today)
    fixed = [each for each in seeded if each.name in today]
    drawn = [each for each in seeded if each.name not in today]
    assert all(_bits(each) == _bits(today[each.name]) for each in fixed)
    assert all(each.name.endswith("-12345") for each in drawn)
    assert len(drawn) > len(fixed)
    known = {_bits(each) for each in today.values()}
    assert all(_bits(each) not in known for each in drawn)
    assert Counter(each.kind for each in drawn) + Counter(each.kind for each in fixed) == Counter(
        each.kind for each in today.values()
    )
    again = tv.case("float16-offset-10-4x67-12345")
    assert [_bits(again)] == [_bits(each) for each in drawn if each.name == again.name]
    assert again.seeded


def _made_of(case: tv.Case) -> tuple[object, ...]:
    return _bits(case), case.eps, case.kind, case.family, case.needs, case.layout, case.repeats


def test_a_width_has_one_case_of_a_seed_at_both_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are drawn, too: the list before them is longer at one level."""
    for level in LEVELS:
        monkeypatch.setitem(WIDTHS, level, tuple(size for size in WIDTHS[level] if size < 20))
    found: dict[str, tuple[object, ...]] = {}
    for level, seed in [*itertools.product(["quick"], range(4)), ("full", 0), ("full", 1)]:
        some = ordinary(tv.LAYER_NORM, "float16", level, seed)
        for each in itertools.takewhile(lambda case: case.family == "normal", some):
            assert found.setdefault(each.name, _made_of(each)) == _made_of(each), each.name
    assert len(found) == 4 * (sum(map(len, WIDTHS.values())) + len(RANDOM_WIDTHS))


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(ValueError, match="seed must be 0 or above; got -1"):
        tv.cases("float32", seed=-1)


def test_operation_as_text() -> None:
    name, rms_norm = "float32-normal-4x5", tv.RMS_NORM
    x = tv.case(name).x
    assert tv.case(name, operation="rms_norm").operation == rms_norm
    assert tv.cases("float32", operation="rms_norm")[0].operation == rms_norm
    assert tv.case_of_shape((4, 5), operation="rms_norm").operation == rms_norm
    assert tv.case_from({"x": x}, operation="rms_norm").operation == rms_norm


@SLOW
@pytest.mark.parametrize("dtype", FORMATS)
def test_every_name_leads_back_to_its_case(dtype: str) -> None:
    for level, seed in itertools.product(LEVELS, range(4)):
        for each in tv.cases(dtype, level, list(tv.EXTENSIONS), seed=seed):
            assert _made_of(tv.case(each.name)) == _made_of(each), each.name
