"""Operators of formulas: answers and gradients equal those of rows of balls, written by hand."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest

import truenorm.verify.formulas as f
from truenorm.verify.formulas.answers import Answers
from truenorm.verify.formulas.arithmetic import round_arb
from truenorm.verify.formulas.graph import Node, derive, given
from truenorm.verify.types import FORMATS, Float64s

BITS = 600
STEP = 2.0**-100
"""Of central differences: their error is about its square."""
Row = list[Any]
ByHand = Callable[[Row, Row], Row]
BY_HAND: dict[str, tuple[Callable[[Node, Node], Node], ByHand]] = {
    "quotient": (lambda x, z: x / (2.0 + z**2), lambda x,
        z: [a / (2 + b * b) for a, b in both(x, z)]),
    "inverse": (lambda x, z: 3.0 / (x * x + 1.0) - z**-1, lambda x,
        z: [3 / (a * a + 1) - 1 / b for a, b in both(x, z)]),
    "power": (lambda x, z: x**5 - z**3 + x**1 + x**0, lambda x,
        z: [a**5 - b**3 + a + 1 for a, b in both(x, z)]),
    "magnitude": (lambda x, z: abs(x) * -z, lambda x, z: [-abs(a) * b for a, b in both(x, z)]),
    "exp": (lambda x, z: f.exp(x - z), lambda x, z: [(a - b).exp() for a, b in both(x, z)]),
    "log": (lambda x, z: f.log(1.0 + x * x) * z, lambda x,
        z: [(1 + a * a).log() * b for a, b in both(x, z)]),
    "tanh": (lambda x, z: 30.0 * f.tanh(x / 30.0) * z, lambda x,
        z: [30 * (a / 30).tanh() * b for a, b in both(x, z)]),
    "sigmoid": (lambda x, z: x * f.sigmoid(z), lambda x,
        z: [a / (1 + (-b).exp()) for a, b in both(x, z)]),
    "erf": (lambda x, z: x * f.erf(z * f.inverse_root(2.0)), lambda x,
        z: [a * (b / flint.arb(2).sqrt()).erf() for a, b in both(x, z)]),
    "where": (lambda x, z: f.where(x > 0.0, x * z, -1.0), lambda x,
        z: [a * b if a > 0 else flint.arb(-1) for a, b in both(x, z)]),
    "at most": (lambda x, z: f.where(x <= 1.0, x, z), lambda x,
        z: [a if a <= 1 else b for a, b in both(x, z)]),
    "less": (lambda x, z: f.where(x < z, x * x, z * z), lambda x,
        z: [a * a if a < b else b * b for a, b in both(x, z)]),
    "at least": (lambda x, z: f.where(x >= z, x, z), lambda x,
        z: [a if a >= b else b for a, b in both(x, z)]),
    "largest": (lambda x, z: x / f.largest(abs(x)) + z, lambda x,
        z: [a / top([abs(each) for each in x]) + b for a, b in both(x, z)]),
    "first": (lambda x, z: x * f.mean(f.first(z, 0.5) ** 2), lambda x,
        z: [a * sum(b * b for b in z[: len(z) // 2]) / (len(z) // 2) for a in x]),
    "rotation": (lambda x, z: x + f.rotate_half(x * z), lambda x,
        z: [a + b for a, b in zip(x, rotated([a * b for a, b in both(x, z)]), strict=True)]),
    "softmax": (lambda x, z: f.exp(x) / f.total(f.exp(x)) * z, lambda x,
        z: [a.exp() / sum(each.exp() for each in x) * b for a, b in both(x, z)]),
    "rms": (
        lambda x, z: x * f.inverse_root(f.mean(x * x) + 0.5) * z,
        lambda x, z: [
            a * b / (sum(each * each for each in x) / len(x) + 0.5).sqrt() for a, b in both(x, z)
        ],
    ),
}  # fmt: skip
ROWS, SIZE = 3, 6


def both(x: Row, z: Row) -> list[tuple[Any, Any]]:
    return list(zip(x, z, strict=True))


def top(row: Row) -> Any:
    return max(row, key=float)


def rotated(row: Row) -> Row:
    half = len(row) // 2
    return [*(-each for each in row[half:]), *row[:half]]


def numbers(seed: int) -> dict[str, Float64s]:
    random = np.random.default_rng(seed)
    names = ("x", "z", "dy")
    return {
        name: random.normal(size=(ROWS, SIZE)).astype(np.float32).astype(float) for name in names
    }


def as_arbs(row: Float64s) -> Row:
    return [flint.arb(each) for each in row.tolist()]


def symbols() -> tuple[Node, Node, Node]:
    x, z, dy = (given(name, [0, 1]) for name in ("x", "z", "dy"))
    return x, z, dy


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", BY_HAND)
def test_answers_are_those_by_hand(name: str, kind: str) -> None:
    formula, by_hand = BY_HAND[name]
    x, z, _ = symbols()
    inputs = numbers(1)
    pairs = Answers({"y": formula(x, z)}, inputs).rounded("y", kind)
    with flint.ctx.workprec(BITS):
        for row in range(ROWS):
            right = by_hand(as_arbs(inputs["x"][row]), as_arbs(inputs["z"][row]))
            values = [round_arb(each, FORMATS[kind], is_last=True) for each in right]
            assert pairs[row, :, 0].tolist() == values


@pytest.mark.parametrize("name", BY_HAND)
def test_gradients_are_central_differences(name: str) -> None:
    formula, by_hand = BY_HAND[name]
    x, z, dy = symbols()
    y, inputs = formula(x, z), numbers(2)
    gradients = dict(zip("xz", derive({y: dy}, [x, z]), strict=True))
    answers = Answers(gradients, inputs)
    with flint.ctx.workprec(BITS):

        def loss(rows: dict[str, Row], weights: Row) -> Any:
            results = by_hand(rows["x"], rows["z"])
            return sum(a * b for a, b in zip(results, weights, strict=True))

        for given_to in "xz":
            found = np.broadcast_to(answers.rounded(given_to, "float64")[..., 0], (ROWS, SIZE))
            for row in range(ROWS):
                weights = as_arbs(inputs["dy"][row])
                for column in range(SIZE):
                    rows = {each: as_arbs(inputs[each][row]) for each in "xz"}
                    ends = []
                    for step in (STEP, -STEP):
                        moved = {each: [*values] for each, values in rows.items()}
                        moved[given_to][column] += step
                        ends.append(loss(moved, weights))
                    slope = (ends[0] - ends[1]) / (2 * STEP)
                    assert found[row, column] == pytest.approx(float(slope), rel=1e-14, abs=1e-25)


def test_take_is_the_element_at_an_index() -> None:
    x, dy, label = given("x", [0, 1]), given("dy", [0]), Node("index", (), [0], ("label",))
    taken = f.take(x * x, label)
    inputs = {"x": np.arange(6.0).reshape(2, 3), "dy": np.array([[1.0], [10.0]])}
    inputs["label"] = np.array([[2.0], [0.0]])
    (dx,) = derive({taken: dy}, [x])
    answers = Answers({"y": taken, "dx": dx}, inputs)
    assert answers.rounded("y", "float32")[..., 0].tolist() == [[4.0], [9.0]]
    assert answers.rounded("dx", "float32")[..., 0].tolist() == [[0, 0, 4.0], [60.0, 0, 0]]


def test_a_rational_tie_is_proven() -> None:
    """1 + x/2 is halfway between two numbers of float32."""
    x = given("x", [0, 1])
    ulp = 2.0**-23
    inputs = {"x": np.array([[ulp, 3 * ulp, -2.0]])}
    answers = Answers({"y": abs(1.0 + x / 2.0) ** 1}, inputs)
    pairs = answers.rounded("y", "float32")
    assert pairs[0].tolist() == [[1.0, 0.5], [1 + 2 * ulp, -0.5], [0.0, 0.0]]
    assert answers.unproven == 0


def test_a_softmax_with_minus_infinity_has_exact_answers() -> None:
    x = given("x", [0, 1])
    e = f.exp(x - f.largest(x))
    inputs = {"x": np.array([[0.5, -np.inf, 1.5], [np.inf, 0.0, 1.0], [np.nan, 0.0, 1.0]])}
    values = Answers({"y": e / f.total(e)}, inputs).rounded("y", "float64")[..., 0]
    with flint.ctx.workprec(BITS):
        right = float(1 / (1 + flint.arb(1).exp()))
    assert values[0].tolist() == [right, 0.0, float(1 - Fraction(right))]
    assert np.isnan(values[1:]).all()


def test_a_number_beyond_every_type_is_infinite() -> None:
    x = given("x", [0, 1])
    answers = Answers({"y": f.exp(x)}, {"x": np.array([[1e30, -1e30, 1e5]])})
    assert answers.rounded("y", "float32")[0, :, 0].tolist() == [np.inf, 0.0, np.inf]


@pytest.mark.parametrize(("formula", "message"), [
    (lambda x: x if x > 0.0 else -x, "cannot branch on x > 0"),
    (lambda x: x**0.5, "exponent of \\*\\* must be an integer, got 0.5"),
    (lambda x: x + "1", "expected a number or a step of the formula, got '1'"),
    (lambda x: f.take(x, x), "index must be an argument that is declared as an index, got x"),
    (lambda x: f.first(x, 2), "share must be above 0 and at most 1, got 2"),
])  # fmt: skip
def test_a_formula_that_has_no_meaning_is_refused(formula: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        formula(given("x", [0, 1]))


def test_softmax_of_equal_numbers() -> None:
    x = given("x", [0, 1])
    e = f.exp(x - f.largest(x))
    values = Answers({"y": e / f.total(e)}, {"x": np.full((1, 8), math.pi)}).rounded(
        "y", "float32"
    )
    assert values[0].tolist() == [[0.125, 0.0]] * 8


def test_zero_times_an_undefined_number_is_undefined() -> None:
    """Also where the whole row is 0."""
    x = given("x", [0, 1])
    y = x * f.inverse_root(f.total(x * x))
    values = Answers({"y": y}, {"x": np.array([[0.0, 0.0], [3.0, 4.0]])}).rounded("y", "float32")
    assert np.isnan(values[0, :, 0]).all()
    assert values[1, :, 0].tolist() == np.array([0.6, 0.8], np.float32).tolist()
