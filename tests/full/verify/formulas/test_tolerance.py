"""Natural scales of formulas: by hand, and as bounds of the errors of float32."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truenorm.verify.formulas as f
from full.verify.formulas.test_operators import BY_HAND, numbers, symbols
from truenorm.verify.formulas.arithmetic import Floats, evaluate
from truenorm.verify.formulas.graph import Node, given, needed
from truenorm.verify.formulas.tolerance import is_centring, natural_scales, terms_of

UNIT = 2.0**-24
LEAST = 2.0**-149 / UNIT


def scale_of(node: Node, inputs: dict[str, Any], power: int = 0) -> np.ndarray[Any, Any]:
    return natural_scales({"y": node}, inputs, "float32", power)["y"].error


@pytest.mark.parametrize(("formula", "expected"), [
    (lambda x: x + 1.0, [4, 1]),  # the result
    (lambda x: (x + 1.0) * 2.0, [16, 4]),  # twice the sum, and the product
    (lambda x: f.total(x), [5]),  # each term
    (lambda x: f.mean(x), [2.5 + 0.5]),  # each term, and the quotient
    (lambda x: 6.0 / x, [2, 3]),
    (lambda x: f.log(x * x), [2 + np.log(9), 2 + np.log(4)]),  # x*x, its rounding, and log
    (lambda x: abs(x), [0, 0]),
    (lambda x: f.where(x > 0.0, x * x, x), [9, 0]),
])  # fmt: skip
def test_scales_by_hand(formula: Callable[[Node], Node], expected: list[float]) -> None:
    x = given("x", [0, 1])
    values = np.array([[3.0, -2.0]])
    scale = np.broadcast_to(scale_of(formula(x), {"x": values}), (1, len(expected)))
    assert scale[0].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-30)


def rounded_steps(node: Node, inputs: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return a result with every step rounded to float32, as a kernel computes it."""

    def change(_: Node, values: Any) -> Any:
        return np.asarray(values).astype(np.float32).astype(np.float64)

    return np.asarray(evaluate([node], Floats, inputs, change)[node])


@pytest.mark.parametrize("name", BY_HAND)
def test_errors_of_float32_are_below_the_scale(name: str) -> None:
    x, z, _ = symbols()
    y = BY_HAND[name][0](x, z)
    for seed in range(20):
        inputs = numbers(seed)
        right = evaluate([y], Floats, inputs)[y]
        error = np.abs(rounded_steps(y, inputs) - right)
        allowed = UNIT * scale_of(y, inputs) + 2.0**-49 * np.abs(right)
        assert (error <= 1.001 * allowed).all()


def test_a_scale_is_no_looser_than_ten_errors() -> None:
    """The worst of many errors is near the bound, in the softmax of a few numbers."""
    x, z, _ = symbols()
    y = BY_HAND["softmax"][0](x, z)
    worst = 0.0
    for seed in range(50):
        inputs = numbers(seed)
        error = np.abs(rounded_steps(y, inputs) - evaluate([y], Floats, inputs)[y])
        worst = max(worst, float((error / (UNIT * scale_of(y, inputs))).max()))
    assert worst > 0.1


def test_deviations_from_the_mean() -> None:
    """At power 0, the error is relative to the deviations; at power 1, to the numbers."""
    x = given("x", [0, 1])
    c = x - f.mean(x)
    assert is_centring(c)
    assert not is_centring(x - f.mean(x * x))
    inputs = {"x": np.array([[1e6 - 1, 1e6 + 1]])}
    assert scale_of(c, inputs)[0].tolist() == pytest.approx([2, 2])  # the spread, and c
    assert scale_of(c, inputs, power=1)[0].tolist() == pytest.approx([2e6 + 1, 2e6 + 1])


def test_underflow_counts() -> None:
    """Inputs and results have the smallest number; functions the smallest normal one."""
    x = given("x", [0, 1])
    inputs = {"x": np.array([[-200.0]])}
    assert scale_of(x, inputs).item() == pytest.approx(2 * LEAST, rel=1e-9)
    assert scale_of(f.exp(x), inputs)[0, 0] == pytest.approx(2.0**-126 / UNIT, rel=1e-3)


def test_a_softmax_with_minus_infinity_has_scales() -> None:
    x = given("x", [0, 1])
    e = f.exp(x - f.largest(x))
    scale = scale_of(e / f.total(e), {"x": np.array([[0.5, -np.inf, 1.5]])})
    assert np.isfinite(scale).all()
    assert scale[0, 1] < 1e-29


def test_terms() -> None:
    x, z, _ = symbols()
    y = BY_HAND["rms"][0](x, z)
    assert terms_of(y, numbers(0)) == 6
    assert terms_of(x * z, numbers(0)) == 1
    assert len(needed(y)) > 6
