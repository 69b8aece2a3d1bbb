"""Errors of codes and scales: how far y must move, and the edges of the grades."""

from bisect import bisect_left, bisect_right
from fractions import Fraction
from functools import cache
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from shared.verify.quantized.answers_of import case_of_y, judged
from shared.verify.quantized.balls import codes_of, values_of
from shared.verify.quantized.kernels import LARGEST
from truenorm.verify.norms.quantized.answers import QuantizedExpected
from truenorm.verify.oracle import compute_exact

KINDS = ["e4m3fn", "e4m3fnuz", "e5m2", "int8"]


def may_be(number: Fraction, values: list[Fraction], middles: list[Fraction]) -> list[Fraction]:
    """Return the values that a number rounds to: two, if it is a midpoint."""
    return values[bisect_left(middles, number) : bisect_right(middles, number) + 1]


@cache
def values_and_middles(kind: str) -> tuple[list[Fraction], list[Fraction]]:
    values = [each for each in values_of(kind) if abs(each) <= LARGEST[kind]]
    return values, [(a + b) / 2 for a, b in pairwise(values)]


def distance(y: Fraction, value: Fraction, scale: Fraction, kind: str) -> float:
    """Return how far y must move until y/scale rounds to a value, by bisection."""
    values, middles = values_and_middles(kind)
    start, move = y / scale, value - y / scale
    if value in may_be(start, values, middles):
        return 0.0
    low, high = Fraction(0), Fraction(1)
    for _ in range(50):
        half = (low + high) / 2
        if value in may_be(start + half * move, values, middles):
            high = half
        else:
            low = half
    return float(abs(high * move) * scale)


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_a_code_is_how_far_y_must_move(kind: str) -> None:
    scale = float(np.float32({"e5m2": 1e-4, "int8": 0.03}.get(kind, 0.0099)))
    values, _ = values_and_middles(kind)
    values = values[:: max(1, len(values) // 24)]
    some = np.array([0.0, 0.3, -0.77, 2.5, -60, 1e-3, 1e4])
    y = np.repeat(some, len(values)).astype(np.float32).astype(np.float64)
    codes = np.tile([codes_of(kind)[each] for each in values], len(some)).astype(np.uint8)
    case = case_of_y(kind, y, scale)
    answers = QuantizedExpected(case, compute_exact(case))
    numbers = answers.decoded("codes", codes.view("int8" if kind == "int8" else "uint8"))
    assert numbers is not None
    errors = answers.element_errors("codes", numbers.reshape(1, -1)).error[0]
    for j, value in enumerate(np.tile(np.array(values, object), len(some))):
        exact = distance(Fraction(float(y[j])), value, Fraction(scale), kind)
        if y[j] == 0 and value != 0:
            exact = np.inf  # a zero has the code 0 for every scale
        if errors[j] != exact:
            # Bisection stops at 2^-50 of the way, and float64 rounds y/s at 2^-53.
            assert abs(errors[j] - exact) <= 2.0**-48 * (abs(y[j]) + abs(float(value)) * scale)


@pytest.mark.parametrize(("spec", "group"), [("e4m3fn,scale=per-token", 64), ("mxfp8", 32)])
def test_the_error_of_a_scale_is_how_far_amax_must_move(spec: str, group: int) -> None:
    y = np.full(group, 0.5)
    y[3] = -448.0
    case = case_of_y(spec, y)
    answers = QuantizedExpected(case, compute_exact(case))

    def error(scale: float) -> float:
        return float(answers.element_errors("scale", np.array([[scale]])).error[0, 0])

    below, above = (float(np.nextafter(np.float32(1), np.float32(end))) for end in (0, 2))
    if group == 32:
        assert [error(each) for each in (1, 2, 4, 0.5, 0.25)] == [0, 0, 448, 224, 336]
    else:
        # Each float32 number stands for half of the way to its neighbours.
        assert error(1) == 0
        assert error(above) == 448 * 2.0**-24
        assert error(below) == 448 * 2.0**-25
        assert error(2) == 448 * (1 - 2.0**-24)  # below 2 the step is that of 1
    assert error(np.nan) == error(np.inf) == np.inf


def test_a_faithful_code_is_a_neighbour() -> None:
    # y/s is a code itself, a power of two, where steps change; or between codes.
    quotients: dict[float, list[float]] = {
        256.0: [256],
        250.0: [240, 256],
        257.0: [256, 288],
        1 / 512: [1 / 512],
        500.0: [448],
        0.0009: [0, 1 / 512],
        -250.0: [-256, -240],
        -16.0: [-16],
    }
    every = [float(each) for each in values_of("e4m3fn")]
    for quotient, neighbours in quotients.items():
        case = case_of_y("e4m3fn", np.full(len(every), quotient / 4), 0.25)
        answers = QuantizedExpected(case, compute_exact(case))
        in_ulp = answers.element_errors("codes", np.array([every])).in_ulp[0]
        faithful = [each for each, ulp in zip(every, in_ulp, strict=True) if ulp < 1]
        assert sorted(faithful) == neighbours


@pytest.mark.parametrize("share", [0.95, 1.05])
def test_a_stable_code_has_the_error_of_a_stable_y(share: float) -> None:
    size, middle = 16, 100.0  # between the codes 96 and 104
    y = middle * 2.0**-6
    # ulp + K*u*|y| + 2^-22*|y|, with K = 8 + sqrt(16)/4 for rows of float32
    allowed = 2.0**-23 + 9 * 2.0**-24 * y + 2.0**-22 * y
    case = case_of_y("e4m3fn", np.full(size, y - share * allowed), 2.0**-6)
    codes = np.full((1, size), 104.0).astype(ml_dtypes.float8_e4m3fn)
    error = judged(case, codes=codes)["codes"].error
    assert (error.needs == 0) == (share < 1)
    assert not error.correct


def test_correct_codes_are_all_exact() -> None:
    y = np.linspace(-3, 3, 64)  # over a power of two, so that NumPy is exact
    case = case_of_y("e4m3fn", y, 2.0**-7)
    right = np.clip(case.gamma * 2.0**6, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    assert judged(case, codes=right[np.newaxis])["codes"].error.correct
    for j in (0, 40, 63):
        other = right.copy().view(np.uint8)
        other[j] -= 1
        assert not judged(case, codes=other[np.newaxis])["codes"].error.correct


def test_qmax_is_the_largest_code() -> None:
    y = np.array([*np.linspace(-1, 1, 15), 1.75])  # the scale is 2^-7
    case = case_of_y("e4m3fnuz,scale=per-token,qmax=224", y)
    scale = (np.abs(case.gamma / 2).max(keepdims=True) / np.float32(224)).reshape(1, 1)
    codes = (case.gamma / 2 / scale).astype(ml_dtypes.float8_e4m3fnuz)
    verdicts = judged(case, codes=codes, scale=scale)
    assert verdicts["codes"].error.correct
    assert verdicts["scale"].error.correct
    # 240 would stand for 232 and more.
    codes.view(np.uint8)[0, -1] += 1
    assert judged(case, codes=codes, scale=scale)["codes"].error.needs
    over = (np.abs(case.gamma / 2).max(keepdims=True) / np.float32(240)).reshape(1, 1)
    assert judged(case, scale=over)["scale"].error.needs


def test_int8_does_not_saturate_at_minus_128() -> None:
    y = np.array([-1.275, -2.0, 1.0, 0.5])
    case = case_of_y("int8", y, 0.01)
    right = np.array([[-127, -127, 100, 50]], np.int8)
    assert judged(case, codes=right)["codes"].error.correct
    error = judged(case, codes=np.array([[-128, -128, 100, 50]], np.int8))["codes"].error
    # y is beyond -127.5 scales, so -128 is no error of y, but it is another code.
    assert (error.needs, error.correct) == (0, False)
    wrapped = np.array([[-127, 56, 100, 50]], np.int8)
    assert judged(case, codes=wrapped)["codes"].error.needs
