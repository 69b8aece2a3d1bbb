"""What is refused before anything is checked, and the words in which it is."""

from typing import Any

import numpy as np
import pytest

import truenorm as tn
from gradient_check.pairs import Array

CHECKS = [tn.gradcheck, tn.dot_test, tn.taylor_test]
ONES = np.ones(2)


def identity(x: Array) -> Array:
    return x


def right(dy: Array, _: Array) -> tuple[Array]:
    return (dy,)


WRONG: dict[str, tuple[Any, Any, Any, str]] = {
    "integers": (identity, right, [np.arange(3)], r"x is of type int64.*\.astype\(float\)"),
    "an input that is not finite": (
        lambda x1, x2: x1 * x2,
        right,
        [np.ones(1), np.full(1, np.nan)],
        "x2 has a non-finite element",
    ),
    "no inputs": (identity, right, None, "inputs is of type NoneType: pass an array, or a list"),
    "numbers instead of arrays": (
        identity,
        right,
        [1.0, 2.0],
        r"forward takes .*x.* but is called with 2 arguments: pass a list of inputs",
    ),
    "forward returns what it saved": (
        lambda x: (x, {"saved": x}),
        right,
        ONES,
        "forward returned a tuple whose element 1 is a dict: return y",
    ),
    "forward returns nothing": (lambda _: None, right, ONES, "forward returned None"),
    "forward returns integers": (
        lambda x: x.astype(int),
        right,
        ONES,
        "forward returned an array of type int64",
    ),
    "backward takes dy alone": (
        identity,
        lambda dy: dy,
        ONES,
        r"backward takes \(dy\) but is called with 2 arguments: write it as backward\(dy, x\)",
    ),
    "backward returns nothing": (
        identity,
        lambda *_: None,
        ONES,
        "backward returned None where a tuple of 1 was expected",
    ),
    "backward returns names": (
        identity,
        lambda dy, _: {"x": dy},
        ONES,
        "backward returned a dict where a tuple of 1",
    ),
    "too few gradients": (
        np.multiply,
        lambda dy, a, b: (dy * a * b,),
        [ONES, ONES],
        "backward returned 1 gradients for 2 inputs",
    ),
    "one array for several gradients": (
        np.multiply,
        lambda dy, a, b: dy * a * b,
        [ONES, ONES],
        "returned an array where a tuple of 2 was expected",
    ),
    "a gradient of another shape": (
        identity,
        lambda dy, x: ((dy * x).sum(),),
        ONES,
        r"the gradient of x has shape \(\) but",
    ),
    "a gradient that is not real": (
        identity,
        lambda dy, _: (dy + 0j,),
        ONES,
        "the gradient of x is of type complex128",
    ),
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", WRONG)
def test_refused(name: str, check: Any) -> None:
    forward, backward, inputs, words = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=words):
        check(forward, backward, inputs)


@pytest.mark.parametrize("check", CHECKS[:2])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"method": "forward"},
            "method must be one of auto, jet, complex, central; got 'forward'",
        ),
        ({"probes": 0}, "probes must be at least 1, got 0"),
        ({"tol": 0.0}, "tol must be a positive number, got 0.0"),
        ({"tol": float("nan")}, "tol must be a positive number, got nan"),
    ],
)
def test_wrong_options(check: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(identity, right, [ONES], **options)


@pytest.mark.parametrize("check", CHECKS)
def test_one_array_is_taken_for_inputs_and_for_a_gradient(check: Any) -> None:
    assert check(lambda x: x**2, lambda dy, x: 2 * dy * x, np.array([[0.5, 1.5]]))


def test_inputs_go_by_the_names_that_forward_has_for_them() -> None:
    def forward(x: Array, weight: Array, *, scale: float = 2.0) -> Array:
        return scale * x * weight

    def backward(dy: Array, x: Array, weight: Array) -> tuple[Array, Array]:
        return 2 * dy * weight, (2 + np.arange(2.0)) * dy * x

    found = tn.gradcheck(forward, backward, [ONES, ONES])
    assert [each.name for each in found.inputs] == ["x", "weight"]
    assert "  weight: FAIL, " in str(found)
    assert "FAIL: gradient of weight at [1]: " in repr(found)
    unnamed = tn.gradcheck(lambda *given: given[0], lambda dy, *_: (dy,), [ONES])
    assert "  input 0: PASS" in str(unnamed)
