"""Zeros, tiny rows, NaN and infinity: which codes and scales are right."""

import ml_dtypes
import numpy as np
import pytest

from shared.verify.quantized.answers_of import case_of_y, judged
from shared.verify.quantized.kernels import Array
from truenorm.verify.operation import Case

SIZE = 64
Y = np.array([*np.linspace(-1, 1, SIZE - 1), 1.75])  # with qmax = 448, the scale is 2^-8


def rows(*values: float) -> Array:
    """Return a row of ones, and one of ones with a value in column 5 for each of these."""
    x = np.ones((1 + len(values), SIZE), np.float32)
    x[1:, 5] = values
    return x


def codes_of(y: Array, scale: Array | float) -> Array:
    scaled = np.clip(y / scale, -448, 448).astype(np.float32)
    return np.asarray(scaled.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))


def of_zeros(spec: str) -> Case:
    x = np.ones((2, SIZE), np.float32)
    x[1] = 0
    return case_of_y(spec, Y, 2.0**-8, x)


@pytest.mark.parametrize("scale", [1.0, 0.0, 2.0**-23, 1e30])
def test_zeros_have_any_finite_scale(scale: float) -> None:
    case = of_zeros("e4m3fn,scale=per-token")
    scales = np.array([[2.0**-8], [scale]], np.float32)
    codes = np.zeros((2, SIZE), np.uint8)
    codes[0] = codes_of(Y, 2.0**-8)
    codes[1, ::2] = 0x80  # -0
    verdicts = judged(case, codes=codes, scale=scales)
    assert verdicts["codes"].error.correct
    assert verdicts["scale"].error.needs == 0
    codes[1, 3] = 1
    assert judged(case, codes=codes, scale=scales)["codes"].error.needs
    for other in (np.nan, np.inf):
        scales[1] = other
        assert judged(case, scale=scales)["scale"].error.needs


def test_e4m3fnuz_has_no_negative_zero() -> None:
    case = of_zeros("e4m3fnuz")
    codes = np.zeros((2, SIZE), np.uint8)
    codes[0] = (Y * 256).clip(-240, 240).astype(ml_dtypes.float8_e4m3fnuz).view(np.uint8)
    assert not judged(case, codes=codes)["codes"].error.needs
    codes[1, 9] = 0x80
    error = judged(case, codes=codes)["codes"].error
    assert error.needs
    assert error.at == (1, 9)


def test_a_scale_of_zero_is_wrong_for_rows_that_are_not() -> None:
    case = case_of_y("e4m3fn,scale=per-token", Y)
    verdicts = judged(
        case, codes=np.zeros((1, SIZE), np.uint8), scale=np.zeros((1, 1), np.float32)
    )
    assert verdicts["scale"].error.needs
    # The codes are right for this scale: one fault is reported once.
    assert verdicts["codes"].error.needs == 0


@pytest.mark.parametrize(("floor", "scale", "right"), [
    ("any", 1e-9 / 448, True),
    ("any", 1 / (448 * 512), True),
    ("any", 2.0**-23, True),
    ("any", 1e-6 / 448, True),
    ("any", 3e-10, True),
    ("any", 1e-3, False),
    ("any", 0.5e-9 / 448, False),
    ("none", 1e-9 / 448, True),
    ("none", 1 / (448 * 512), False),
])  # fmt: skip
def test_tiny_rows_may_have_a_small_least_scale(floor: str, scale: float, right: bool) -> None:
    y = np.linspace(-1e-9, 1e-9, SIZE)
    case = case_of_y(f"e4m3fn,scale=per-token,floor={floor}", y)
    scales = np.full((1, 1), scale, np.float32)
    codes = codes_of(case.gamma / 2, scales.astype(np.float64))
    verdicts = judged(case, codes=codes.reshape(1, -1), scale=scales)
    assert (verdicts["scale"].error.needs == 0) == right
    assert verdicts["codes"].error.needs == 0


@pytest.mark.parametrize("scale", [1 / (448 * 512), 2.0**-23])
def test_a_least_scale_is_wrong_for_large_rows(scale: float) -> None:
    case = case_of_y("e4m3fn,scale=per-token", Y)
    assert judged(case, scale=np.full((1, 1), scale, np.float32))["scale"].error.needs


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_is_propagated_or_clamped(value: float) -> None:
    x = rows(value)
    right = codes_of(np.tile(Y, (2, 1)), 2.0**-8)
    right[1] = 0  # beside an infinity, y is 0
    nan, finite = right.copy(), right.copy()
    if np.isnan(value):
        nan[1], finite[1] = 0x7F, 0x7E
    else:
        nan[1, 5], finite[1, 5] = 0x7F, 0x7E
    wrong = [[1, j] for j in (range(SIZE) if np.isnan(value) else [5])]
    for rule, good, bad in (("propagate", nan, finite), ("clamp", finite, nan)):
        case = case_of_y(f"e4m3fn,nan={rule}", Y, 2.0**-8, x)
        verdict = judged(case, codes=good)["codes"]
        assert verdict.error.correct
        assert not verdict.misplaced
        assert judged(case, codes=bad)["codes"].misplaced == wrong


def test_infinity_of_e5m2_is_no_finite_result() -> None:
    case = case_of_y("e5m2", Y, 1e-5, rows(np.nan))
    codes = np.tile(Y / np.float32(1e-5), (2, 1)).clip(-57344, 57344).astype(ml_dtypes.float8_e5m2)
    bits = codes.view(np.uint8)
    bits[1] = 0x7C  # infinity, where y is NaN
    verdict = judged(case, codes=bits)["codes"]
    assert verdict.error.needs == 0
    assert not verdict.misplaced
    bits[0, -1] = 0x7C
    error = judged(case, codes=bits)["codes"].error
    assert error.needs
    assert error.at == (0, SIZE - 1)


def test_int8_cannot_propagate_nan_with_a_static_scale() -> None:
    case = case_of_y("int8", Y, 2.0**-6, rows(np.nan))
    codes = np.tile(np.rint(Y * 64), (2, 1)).clip(-127, 127).astype(np.int8)
    codes[1] = 0
    verdict = judged(case, codes=codes)["codes"]
    assert verdict.error.needs == 0
    assert not verdict.misplaced


@pytest.mark.parametrize("kind", ["int8", "e4m3fn"])
def test_a_dynamic_scale_propagates_nan(kind: str) -> None:
    case = case_of_y(f"{kind},scale=per-token", Y, 0.0, rows(np.nan))
    codes = np.zeros((2, SIZE), "int8" if kind == "int8" else "uint8")
    scale = np.array([[1.75], [np.nan]], np.float32)
    assert not judged(case, codes=codes, scale=scale)["codes"].misplaced
    scale[1] = 1
    assert len(judged(case, codes=codes, scale=scale)["codes"].misplaced) == SIZE


def test_nan_may_spread_in_its_group_only() -> None:
    y = np.tile(Y, 2)
    y[70] = np.nan
    case = case_of_y(f"e4m3fn,scale=per-{SIZE}", y)
    codes = np.tile(codes_of(Y, 2.0**-8), 2)[np.newaxis]
    codes[0, SIZE:] = 0x7F
    for scale in (np.nan, 1.0):
        scales = np.array([[2.0**-8, scale]], np.float32)
        verdicts = judged(case, codes=codes, scale=scales)
        assert all(each.error.correct and not each.misplaced for each in verdicts.values())
    # In the other group a NaN is an error.
    codes[0, 2] = 0x7F
    assert judged(case, codes=codes, scale=scales)["codes"].error.needs
    codes[0, 2] = 0
    scales[0, 0] = np.nan
    assert judged(case, codes=codes, scale=scales)["scale"].error.needs
    # A finite code with a finite scale hides the NaN.
    codes[0, 70] = 3
    assert judged(case, codes=codes, scale=scales)["codes"].misplaced == [[0, 70]]


def test_clamped_groups_are_finite() -> None:
    y = np.tile(Y, 2)
    y[70] = np.nan
    case = case_of_y(f"e4m3fn,scale=per-{SIZE},nan=clamp", y)
    codes = np.tile(codes_of(Y, 2.0**-8), 2)[np.newaxis]
    scales = np.array([[2.0**-8, 1]], np.float32)
    assert not judged(case, codes=codes, scale=scales)["codes"].misplaced
    scales[0, 1] = np.nan
    assert len(judged(case, codes=codes, scale=scales)["codes"].misplaced) == SIZE


@pytest.mark.parametrize("quant", ["mxfp8", "mxfp4", "nvfp4"])
def test_a_byte_of_nan_is_a_scale_of_nan(quant: str) -> None:
    y = np.tile(Y, 2)
    y[3] = np.nan
    case = case_of_y(quant, y, 64.0)
    group = 16 if quant == "nvfp4" else 32
    nan, one = (0x7F, 0x38) if quant == "nvfp4" else (0xFF, 127)
    scales = np.full((1, 128 // group), one, np.uint8)
    codes = np.zeros((1, 128), np.uint8)
    assert judged(case, codes=codes, scale=scales)["codes"].misplaced == [[0, 3]]
    scales[0, 0] = nan
    assert not judged(case, codes=codes, scale=scales)["codes"].misplaced
    scales[0, 1] = nan
    assert judged(case, scale=scales)["scale"].error.needs
