"""The algorithms of `benchmarks.stability`: roundings, errors by fractions, named rows."""

import math
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import truenorm as tn
from benchmarks.stability import TRIGGERS, NamedRow, contestants, errors_of, run
from shared.exact_row import ExactRow, Vector, exact_dgamma, exact_dx, exact_y, fractions
from truenorm.verify.operation import Case
from truenorm.verify.operations import layer_norm_case

EPS = 1e-5


def parameters(example: Case) -> tuple[NDArray[Any], NDArray[Any]]:
    assert example.gamma is not None
    assert example.beta is not None
    return example.gamma, example.beta


def case(dtype: str, offset: float = 300.0, rows: int = 2, size: int = 5) -> Case:
    random = np.random.default_rng(3)
    x, dy = (offset * k + random.standard_normal((rows, size)) for k in (1, 0))
    gamma, beta = random.standard_normal((2, size))
    x, gamma, beta, dy = (each.astype(dtype) for each in (x, gamma, beta, dy))
    return layer_norm_case("small", (x, gamma, beta, dy), EPS)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("two-pass (textbook)", "float32"), ("textbook in float64 then cast", "float64")],
)
def test_textbook_is_cast_at_the_end(name: str, dtype: str) -> None:
    example = case("float32", offset=3e4)
    inputs = (example.x, *parameters(example), example.dy)
    x, gamma, beta, dy = (each.astype(dtype) for each in inputs)
    y, saved = tn.textbook.forward(x, gamma, beta, example.eps)
    expected = [y, *tn.textbook.backward(dy, saved)]
    for ours, theirs in zip([*run(name, example).values()][1:], expected, strict=True):
        assert ours.tobytes() == theirs.astype(np.float32).tobytes()


def test_rounded_exact_mean() -> None:
    """The mean of [0, 1, 1] + 1e7 is 10000000.67: the float32 next to it is 10000001."""
    x = np.array([[1e7, 1e7 + 1, 1e7 + 1]], np.float32)
    ones = np.ones(3, np.float32)
    results = run("rounded exact mean", layer_norm_case("", (x, ones, 0 * ones, x), 0.0))
    assert results["y"][0, 1:].tolist() == [0, 0]
    assert results["y"][0, 0] == pytest.approx(-1 / math.sqrt(2 / 9), rel=2**-22)


@pytest.mark.parametrize(("dtype", "offset"), [("float32", 1e3), ("float64", 1e9)])
def test_largest_errors_in_ulp(dtype: str, offset: float) -> None:
    example = case(dtype, offset, 3, 7)
    gamma, beta = parameters(example)
    results = run("two-pass (textbook)", example)
    exact = {
        "variance": [ExactRow.of(fractions(row), Fraction(0)).w for row in example.x],
        "y": [*chain(*exact_y(example.x, gamma, beta, EPS))],
        "dx": [*chain(*exact_dx(example.x, gamma, example.dy, EPS))],
        "dgamma": exact_dgamma(example.x, example.dy, EPS),
    }
    errors = errors_of(example, results)
    for output, answers in exact.items():
        values = fractions(results[output].ravel())
        rounded = np.array([float(answer) for answer in answers]).astype(dtype)
        ulps = fractions(np.spacing(np.abs(rounded)))
        apart = [abs(a - b) / ulp for a, b, ulp in zip(values, answers, ulps, strict=True)]
        assert errors[output][1] == pytest.approx(float(max(apart)), rel=1e-9)


@pytest.mark.parametrize(("value", "error"), [(np.nan, np.nan), (-np.inf, np.inf)])
def test_error_of_one_wrong_element(value: float, error: float) -> None:
    example = case("float32", 1.0, 3, 7)
    results = run("two-pass (textbook)", example)
    for each in results.values():
        each.flat[1] = value
    errors = errors_of(example, results)
    assert list(errors) == ["variance", "y", "dx", "dgamma"]
    np.testing.assert_equal([*errors.values()], [(error, error)] * 4)


def test_variance_of_a_constant_row() -> None:
    x = np.ones((1, 4), np.float32)
    example = layer_norm_case("", (x, x[0], x[0], x), EPS)
    results = run("two-pass (textbook)", example)
    assert errors_of(example, results)["variance"] == (0.0, 0.0)
    off = {"variance": np.array([2.0**-149], np.float32)}
    assert errors_of(example, off)["variance"] == (np.inf, 1.0)


ONE_PASS = {"one-pass"}
ONE_NUMBER = {*ONE_PASS, "Welford", "two-pass (textbook)", "corrected two-pass"}
ROUNDED = {*ONE_NUMBER, "rounded exact mean"}
IN_THE_TYPE = {*ROUNDED, "pair mean"}
ALL_BUT_OURS = {*IN_THE_TYPE, "textbook in float64 then cast"}

FAIL = {
    ("one-pass cancellation", "float32"): ONE_PASS,
    ("negative variance", "float32"): ONE_PASS,
    ("rounded mean", "float32"): ROUNDED,
    ("variance of a rounded mean", "float32"): {"one-pass", "Welford", "two-pass (textbook)"},
    ("saved mean", "float32"): ROUNDED,
    ("one ulp off", "float32"): ROUNDED,
    ("constant 1234", "float32"): ONE_PASS,
    ("constant 12345.67", "float32"): {"one-pass", "two-pass (textbook)", "corrected two-pass"},
    ("squares overflow", "float32"): IN_THE_TYPE,
    ("squares vanish", "float32"): IN_THE_TYPE,
    ("subnormal", "float32"): IN_THE_TYPE,
    ("alternating", "float32"): {*ONE_NUMBER, "pair mean"},
    ("two elements", "float32"): IN_THE_TYPE,
    ("gradient of y.sum()", "float32"): ALL_BUT_OURS - {"pair mean"},
    ("eps vanishes", "float16"): IN_THE_TYPE,
    # The variance is 60000, which float16 has; only its squares are beyond.
    ("squares overflow", "float16"): IN_THE_TYPE - {"rounded exact mean"},
    ("long sum", "float16"): IN_THE_TYPE,
    ("one-pass cancellation", "float64"): ONE_PASS,
    ("rounded mean", "float64"): ROUNDED,
    ("squares overflow", "float64"): IN_THE_TYPE,
    ("alternating", "float64"): {*ONE_NUMBER, "pair mean"},
    ("two elements", "float64"): IN_THE_TYPE,
}
TOLERANCE = {"float16": 2.0**-9, "float32": 2.0**-20, "float64": 2.0**-48}
"""Eight u: a handful of roundings in rows of five numbers at most, or a constant one."""


def exact(case: Case, output: str) -> Vector:
    """Return the answer as fractions."""
    gamma, beta = parameters(case)
    if output == "variance":
        return [ExactRow.of(fractions(row), Fraction(0)).w for row in case.x]
    if output == "y":
        return exact_y(case.x, gamma, beta, case.eps)[0]
    if output == "dx":
        return exact_dx(case.x, gamma, case.dy, case.eps)[0]
    if output == "dgamma":
        return exact_dgamma(case.x, case.dy, case.eps)
    return [sum(fractions(column), Fraction(0)) for column in case.dy.T]


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda each: f"{each.dtype}-{each.name}")
def test_failing_algorithms(trigger: NamedRow) -> None:
    row = trigger.run()
    answer = exact(trigger.case(), trigger.output)[: len(row.exact)]
    expected = np.array([float(value) for value in answer])
    with np.errstate(under="ignore"):
        rounded = expected.astype(trigger.dtype).astype(float)
    assert row.exact == rounded.tolist()

    tolerance = np.abs(expected) * TOLERANCE[trigger.dtype] + np.abs(rounded - expected)
    failing = {
        name
        for name, values in row.returned.items()
        if not (np.abs(np.array(values) - expected) <= tolerance).all()
    }
    assert failing == FAIL[trigger.name, trigger.dtype]
    named = set(contestants(trigger.dtype)) - set(row.returned)
    assert named == ({"truenorm"} if trigger.output == "variance" else set())
    assert row.returned.get("truenorm", row.exact) == row.exact
