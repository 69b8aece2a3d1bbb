"""Exact scales and amax, at the boundaries of their rules and beside them, by fractions.

Rows of ones with eps = 3 have r = 1/2 and y = gamma/2 + beta. Neighbours of 3 in float64 move y by
2^-54 of gamma/2, which float64 does not show.
"""

from bisect import bisect_left
from fractions import Fraction
from itertools import pairwise
from math import isqrt

import numpy as np
import pytest

from shared.verify.quantized.balls import codes_of, round_to, values_of
from shared.verify.quantized.kernels import LARGEST, Array
from truenorm.verify.norms.quant import POWERS
from truenorm.verify.norms.quantized.answers import QuantizedExpected
from truenorm.verify.operation import Case
from truenorm.verify.operations import parse_operation
from truenorm.verify.oracle import compute_exact

EPSILONS = {"at": 3.0, "above": float(np.nextafter(3, 0)), "below": float(np.nextafter(3, 4))}
"""By where y is, beside gamma/2."""
PRECISION = {"e4m3fn": 4, "e2m1": 2}
BITS = 400


def root(square: Fraction) -> Fraction:
    """Return 1/sqrt(square): exactly if that is rational, else to 400 bits."""
    over, under = isqrt(square.denominator), isqrt(square.numerator)
    if over * over == square.denominator and under * under == square.numerator:
        return Fraction(over, under)
    return Fraction(isqrt((square.denominator << 2 * BITS) // square.numerator), 1 << BITS)


def log2(number: Fraction) -> int:
    exponent = number.numerator.bit_length() - number.denominator.bit_length()
    return exponent - (number < Fraction(2) ** exponent)


def power(amax: Fraction, rule: str, kind: str) -> int:
    """Return the exponent of a scale by a rule: E - t, and 1 more by the digits of amax."""
    qmax = Fraction(LARGEST[kind])
    t, exponent = log2(qmax), log2(amax)
    m, edge = amax / Fraction(2) ** exponent, qmax / 2**t
    if rule == "nearest":  # of log2(amax/qmax)
        k = exponent - t - 2
        while amax**2 > 2 * (qmax * Fraction(2) ** k) ** 2:
            k += 1
        return k
    more: dict[str, bool] = {
        "ceil": m > edge,
        "floor": False,
        "even": m >= 2 - Fraction(1, 2 ** PRECISION[kind]),
        "ceil-of-amax": m > 1,
    }
    return exponent - t + int(more[rule])


def block_scale(number: Fraction) -> Fraction:
    """Round to e4m3fn, ties to even codes, and saturate."""
    codes, number = codes_of("e4m3fn"), min(number, Fraction(448))
    values = values_of("e4m3fn")
    place = bisect_left(values, number)
    near = values[place - 1 : place + 1]
    return min(near, key=lambda each: (abs(each - number), codes[each] & 1))


def case_of(
    spec: str, gamma: Array, eps: float, beta: Array | None = None, setting: float = 0.0
) -> Case:
    norm = parse_operation(spec)
    inputs = {"x": np.ones((1, gamma.size), np.float32), "gamma": gamma.astype(np.float32)}
    assert (inputs["gamma"] == gamma).all()
    if beta is not None:
        inputs["beta"] = beta.astype(np.float32)
        assert (inputs["beta"] == beta).all()
    if norm.quant.setting:
        inputs[norm.quant.setting] = np.full(1, setting, np.float32)
    return Case(norm, "test", "float32", inputs, eps)


def output(case: Case, name: str) -> list[float]:
    values = QuantizedExpected(case, compute_exact(case)).values[name]
    assert values is not None
    return [float(each) for each in values.ravel()]


def sizes(case: Case, group: int) -> list[Fraction]:
    r = root(1 + Fraction(case.eps))
    beta = case.inputs.get("beta")
    shift = np.zeros(case.shape[1]) if beta is None else beta
    y = [
        abs(Fraction(float(a)) * r + Fraction(float(b)))
        for a, b in zip(case.gamma, shift, strict=True)
    ]
    return [max(y[start : start + group]) for start in range(0, len(y), group)]


def in_groups(tops: list[float], group: int) -> Array:
    """Return numbers of which each group has one of the tops, of either sign; others are less."""
    numbers = np.random.default_rng(1).uniform(-1, 1, (len(tops), group))
    rows = (np.array(tops)[:, np.newaxis] * numbers / 2).astype(np.float32).astype(np.float64)
    for k, top in enumerate(tops):
        rows[k, (7 * k + 3) % group] = -top if k % 3 == 1 else top
    return rows.ravel()


@pytest.mark.parametrize("where", EPSILONS)
@pytest.mark.parametrize("rule", POWERS)
@pytest.mark.parametrize("quant", ["mxfp8", "mxfp4"])
def test_powers_of_two_follow_their_rule(quant: str, rule: str, where: str) -> None:
    kind = "e4m3fn" if quant == "mxfp8" else "e2m1"
    parts = [1, 1.5, 1.75, 1.8125, 1.875, 1.9375, LARGEST[kind], LARGEST[kind] * 2**0.5]
    narrow = [float(np.float32(each)) for each in parts]
    beside = [float(np.nextafter(np.float32(each), np.float32(9e9))) for each in parts]
    tops = [each * 2.0**k for each in (*narrow, *beside) for k in (-40, 0, 7)]
    case = case_of(
        f"rms_norm,quant={quant},power={rule}", 2 * in_groups(tops, 32), EPSILONS[where]
    )
    expected = [2.0 ** power(each, rule, kind) for each in sizes(case, 32)]
    assert output(case, "scale") == expected


@pytest.mark.parametrize("quant", ["mxfp8", "mxfp4"])
def test_the_nearest_power_beside_its_boundary(quant: str) -> None:
    # eps = 1 makes r = 1/sqrt(2), so that y is qmax*sqrt(2) and log2(y/qmax) is 1/2.
    kind = "e4m3fn" if quant == "mxfp8" else "e2m1"
    gamma = in_groups([2 * LARGEST[kind] * 2.0**k for k in range(-20, 20)], 32)
    for eps in (np.nextafter(1.0, 0), np.nextafter(1.0, 2), 1 - 2.0**-51, 1 + 2.0**-51):
        case = case_of(f"rms_norm,quant={quant},power=nearest", gamma, float(eps))
        expected = [2.0 ** power(each, "nearest", kind) for each in sizes(case, 32)]
        assert output(case, "scale") == expected


def test_powers_end_at_those_of_e8m0() -> None:
    gamma = np.zeros(32 * 4)
    gamma[::32] = [2.0**-149, 2.0**-119, 2.0**-117, 2.0**127]
    case = case_of("rms_norm,quant=mxfp8", gamma, 3.0)
    # y is half of gamma. Without an end the first power would be -157.
    assert output(case, "scale") == [2.0**-127, 2.0**-127, 2.0**-126, 2.0**118]


@pytest.mark.parametrize("where", EPSILONS)
@pytest.mark.parametrize("factor", [1.0, 2.0**11, 3000.0])
def test_block_scales_are_rounded_once(factor: float, where: str) -> None:
    values = [float(each) for each in values_of("e4m3fn") if each >= 0]
    middles = [(a + b) / 2 for a, b in pairwise(values)]
    tops = [6 * each for each in (*middles[:20:3], *middles[20::7], 448.0, 460.0, 470.0, 1e6)]
    # With G = 3000 they are next to ties in float32.
    gamma = 2 * in_groups([float(np.float32(each / factor)) for each in tops], 16)
    case = case_of("rms_norm,quant=nvfp4", gamma, EPSILONS[where], None, factor)
    expected = [float(block_scale(Fraction(factor) * each / 6)) for each in sizes(case, 16)]
    assert output(case, "scale") == expected


def halves(numbers: list[Fraction]) -> tuple[Array, Array]:
    """Return gamma and beta in float32 with gamma/2 + beta equal to the numbers."""
    gamma = np.array([float(np.float32(float(2 * each))) for each in numbers])
    pairs = zip(gamma.tolist(), numbers, strict=True)
    beta = np.array([float(each - Fraction(half) / 2) for half, each in pairs])
    return gamma, beta


FLOAT32_TIES = [
    Fraction(2**24 + 2 * k + 1, 2**25) * 2**power
    for k in (0, 1, 77, 2**22 + 5)
    for power in (0, 9)
]
"""Midpoints of float32 numbers."""


@pytest.mark.parametrize("where", EPSILONS)
@pytest.mark.parametrize(("quant", "qmax"), [("e4m3fn", 448), ("int8", 127), ("e5m2", 57344)])
def test_float32_scales_are_rounded_once(quant: str, qmax: int, where: str) -> None:
    gamma, beta = halves([qmax * each for each in FLOAT32_TIES])
    smaller = np.zeros((len(gamma), 8))
    wide = [np.concatenate([each[:, np.newaxis], smaller], axis=1) for each in (gamma, beta)]
    spec = f"rms_norm,beta=true,quant={quant},scale=per-9"
    case = case_of(spec, wide[0].ravel(), EPSILONS[where], wide[1].ravel())
    expected = [float(round_to(each / qmax, "float32")) for each in sizes(case, 9)]
    assert output(case, "scale") == expected


def two_candidates(tops: list[Fraction], group: int, order: int) -> tuple[Array, Array]:
    """Return gamma and beta with two elements in each group that r moves in opposite directions.

    Both are the top for r = 1/2. For another r one of them is above the top.
    """
    gamma, beta = (np.zeros((len(tops), group)) for _ in range(2))
    rising = halves(tops)
    gamma[:, 2], beta[:, 2] = rising
    # The next power of two, less what is above the top: that has fewer digits than the top.
    powers = [2 * Fraction(2) ** log2(top) for top in tops]
    gamma[:, 5] = [float(-2 * (each - top)) for each, top in zip(powers, tops, strict=True)]
    beta[:, 5] = [float(each) for each in powers]
    return gamma[:, ::order].ravel(), beta[:, ::order].ravel()


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("where", ["above", "below"])
@pytest.mark.parametrize(("spec", "group", "setting", "tops"), [
    ("quant=mxfp8", 32, 0.0, [448 * Fraction(2) ** k for k in range(-3, 4)]),
    ("quant=mxfp4,power=even", 32, 0.0, [7 * Fraction(2) ** k for k in range(-3, 4)]),
    ("quant=nvfp4", 16, 1.0, [Fraction(6 * each) for each in (17, 38, 100)]),
    ("quant=e4m3fn,scale=per-8", 8, 0.0, [448 * (1 + Fraction(1, 2**24))]),
])  # fmt: skip
def test_the_largest_of_two_that_float64_does_not_separate(
    spec: str, group: int, setting: float, tops: list[Fraction], where: str, order: int
) -> None:
    gamma, beta = two_candidates(tops, group, order)
    case = case_of(f"rms_norm,beta=true,{spec}", gamma, EPSILONS[where], beta, setting)
    amax = sizes(case, group)
    assert all(a > b for a, b in zip(amax, tops, strict=True))
    expected = {
        "quant=mxfp8": [2.0 ** power(each, "ceil", "e4m3fn") for each in amax],
        "quant=mxfp4,power=even": [2.0 ** power(each, "even", "e2m1") for each in amax],
        "quant=nvfp4": [float(block_scale(each / 6)) for each in amax],
        "quant=e4m3fn,scale=per-8": [float(round_to(each / 448, "float32")) for each in amax],
    }
    assert output(case, "scale") == expected[spec]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("where", EPSILONS)
def test_amax_is_rounded_once(where: str, order: int) -> None:
    for top in FLOAT32_TIES:
        gamma, beta = two_candidates([top], 8, order)
        spec = "rms_norm,beta=true,quant=e4m3fn,amax=true"
        case = case_of(spec, gamma, EPSILONS[where], beta, 0.01)
        expected = [float(round_to(each, "float32")) for each in sizes(case, 8)]
        assert output(case, "amax") == expected


@pytest.mark.parametrize(
    "quant", ["e4m3fn,scale=per-token", "int8,scale=per-64", "mxfp4", "nvfp4"]
)
def test_scales_of_ordinary_rows(quant: str) -> None:
    random = np.random.default_rng(9)
    norm = parse_operation(f"layer_norm,quant={quant}")
    x = random.normal(2, 1, (6, 256)).astype(np.float32)
    gamma, beta = (random.normal(size=256).astype(np.float32) for _ in range(2))
    inputs = {"x": x, "gamma": gamma, "beta": beta}
    if norm.quant.setting:
        inputs[norm.quant.setting] = np.full(1, 700, np.float32)
    case = Case(norm, "test", "float32", inputs, 1e-5)
    group, kind = norm.quant.group or 256, norm.quant.code.name
    expected = []
    for row in x.tolist():
        numbers = list(map(Fraction, row))
        mean = sum(numbers, Fraction(0)) / 256
        c = [each - mean for each in numbers]
        r = root(sum((each * each for each in c), Fraction(0)) / 256 + Fraction(1e-5))
        y = [
            abs(a * r * Fraction(g) + Fraction(b))
            for a, g, b in zip(c, gamma.tolist(), beta.tolist(), strict=True)
        ]
        for start in range(0, 256, group):
            amax = max(y[start : start + group])
            if norm.quant.scale_type == "float32":
                expected.append(float(round_to(amax / Fraction(LARGEST[kind]), "float32")))
            elif norm.quant.scale_type == "e8m0":
                expected.append(2.0 ** power(amax, "ceil", kind))
            else:
                expected.append(float(block_scale(700 * amax / 6)))
    assert output(case, "scale") == expected
